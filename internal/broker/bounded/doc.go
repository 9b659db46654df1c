// Package bounded opens connections to servers that nobody vouches for. A connection has budgets:
// for the bytes that the server sends for one request, for the time that one message takes, and, over
// all connections, for the memory of messages that are still arriving. A server that exceeds a
// budget loses its connection, before a client library allocates memory for what it announced.
//
// A Dialer also refuses to connect to the host itself, to its metadata service, and to networks
// that its options deny. It checks the address to which a name resolved.
package bounded
