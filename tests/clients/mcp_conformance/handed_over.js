// What the suite runs as its client: it writes to a socket the address of the scenario's server and what to call there,
// and ends when the socket is closed.
const net = require("node:net");

const [socket, url] = process.argv.slice(2);
const { MCP_CONFORMANCE_SCENARIO: scenario, MCP_CONFORMANCE_CONTEXT: context } = process.env;
const listener = net.connect(socket);
listener.write(`${JSON.stringify({ scenario, url, context: JSON.parse(context ?? "{}") })}\n`);
listener.on("close", () => process.exit(0)).resume();
