"use strict";
// Starts `einturnip lsp` and lets VS Code speak to it. Colours need none of this.

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function start() {
  const settings = vscode.workspace.getConfiguration("einturnip");
  const [command, ...args] = settings.get("command");
  client = new LanguageClient(
    "einturnip",
    "einturnip",
    { command, args },
    {
      documentSelector: [{ language: "ein" }],
      initializationOptions: { dims: settings.get("dims") },
    },
  );
  return client.start().catch((problem) => {
    vscode.window.showErrorMessage(
      `einturnip's language server did not start (${problem.message}). ` +
        "Install it with: pip install 'einturnip[lsp]', or say where it is in the setting einturnip.command.",
    );
  });
}

async function stop() {
  if (client && client.isRunning()) await client.stop();
  client = undefined;
}

async function activate(context) {
  context.subscriptions.push(
    vscode.workspace.onDidChangeConfiguration(async (change) => {
      if (!change.affectsConfiguration("einturnip")) return;
      await stop();
      await start();
    }),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
