// Package v1alpha1 holds the API of Yardmaster's kinds: their fields, the rules the
// API server enforces on them, and the condition types and reasons they report.
//
// +kubebuilder:object:generate=true
// +groupName=yardmaster.dev
package v1alpha1
