// Package agentprofile defines how a session runner starts the command line of an agent and reads its event stream.
//
// A Profile is data, such as arguments, variables and configuration files, and the name of a Parser, which turns each line of the
// agent's output into Events. A Tally adds up the events: tokens, cost, the conversation and the answer.
//
// The package starts no process and reads no file.
package agentprofile
