// Package manager makes the operator's process: its flags, its cache, its health and
// metrics, its certificates, and which controllers run in it. What a controller does is
// not its business.
package manager
