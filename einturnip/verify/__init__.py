"""A judge of memory graphs that others planned: reads their JSON, shares no code with the planner."""
