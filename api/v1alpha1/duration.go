package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Duration is a length of time as text with the units ms, s, m and h, for example 500ms, 30s or
// 1h30m. It has at most 16 characters, because without a bound the API server would reject the
// validation rules of durations as too expensive.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=16
type Duration struct {
	metav1.Duration `json:",inline"`
}
