// Package agents tests the session runner with the real command lines of agents, against the scripted model server. `make
// test-agents` installs them from npm at the versions in package.json.
package agents
