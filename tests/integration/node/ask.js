// Asks the gateway one question and prints every event as a line of JSON; the status comes last.
// node ask.js <address> <folder of the .proto files> <question> [<metadata as JSON>]
"use strict";

const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, protos, question, metadata = "{}"] = process.argv.slice(2);
const definition = loader.loadSync("hedgerow/gateway/v1/gateway.proto", {
  includeDirs: [protos],
  keepCase: true,
  enums: String,
  oneofs: true,
});
const { GatewayService } = grpc.loadPackageDefinition(definition).hedgerow.gateway.v1;

const headers = new grpc.Metadata();
for (const [name, value] of Object.entries(JSON.parse(metadata))) headers.set(name, value);

const client = new GatewayService(address, grpc.credentials.createInsecure());
const request = { messages: [{ role: "ROLE_USER", content: question }] };
const call = client.Generate(request, headers, { deadline: Date.now() + 20_000 });
call.on("data", (response) => response.events.forEach((event) => console.log(JSON.stringify(event))));
call.on("error", () => {}); // told as a status, too
call.on("status", (status) => {
  console.log(JSON.stringify({ status: grpc.status[status.code], details: status.details }));
  client.close();
});
