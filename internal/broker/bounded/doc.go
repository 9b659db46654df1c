// Package bounded opens connections to servers that are not trusted. A connection has budgets: for the bytes that the server sends for
// a request, for the time that a message takes, and, over all connections, for the memory of messages that are still arriving. A
// connection whose server exceeds a budget is closed, before a client library allocates memory for the announced message.
//
// A Dialer also refuses to connect to the host itself, to its metadata service, and to networks that its options deny. It checks the
// address to which a name resolved.
package bounded
