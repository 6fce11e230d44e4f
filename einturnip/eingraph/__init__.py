"""Program to EinGraph: typed einsums and their rewrites."""
