package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Duration is a length of time, as text with the units ms, s, m and h: 500ms, 30s, 1h30m.
// It is a type of its own for the bound on its length, without which the API server
// would take every rule about it for too expensive.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=16
type Duration struct {
	metav1.Duration `json:",inline"`
}
