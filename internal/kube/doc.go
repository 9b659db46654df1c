// Package kube contains the small helpers that all controllers share for talking to the API
// server: patching a status under an optimistic lock, remembering what this process wrote,
// listing many Jobs without caching them, and classifying errors.
package kube
