// Package kube holds the few helpers that all controllers share for talking to the API
// server: writing a status, and knowing what one has written oneself.
package kube
