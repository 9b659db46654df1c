// Package sessionarchive keeps the transcript of a session's attempt: the runner writes it into a socket, and a container of
// its own, which alone has the credentials, stores it in a claim or in an object store.
package sessionarchive
