// Package runner runs the command line of an agent as an AgenticSession, according to the contract in docs/runner.md.
//
// It reads the session's inputs, starts the agent with a profile of package agentprofile, and turns its output into events, which it
// writes to standard output, one JSON object a line. It renews the session's Lease when the agent is active, and writes the result at
// the end.
//
// It does not depend on Kubernetes libraries, so that it needs little memory: see decision 0130.
package runner
