// Package kube holds the few helpers that all controllers share for talking to the API
// server: writing a status, knowing what one has written oneself, reading many Jobs without
// keeping them, and watching it again soon after it was away.
package kube
