// Package sessionrunner decides what sessions may reach by host name through the egress proxy: it parses and matches
// host rules, and says which addresses a name may resolve to.
//
// It is pure. The operator and the proxy share it: the operator validates SessionRunners and writes the proxy's
// configuration, and the proxy enforces it.
package sessionrunner
