// Package sessiongit clones the repositories of an AgenticSession and pushes its commits, in a container that alone has the
// credentials. The agent's container reads the clones from a volume that it cannot write, and sends commits as a git bundle through a
// socket: see decision 0131.
//
// No git command of this package runs in a directory that the agent can write: hooks and configuration there would run with the
// credentials, and could send them anywhere.
package sessiongit
