package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Duration is a length of time as text with the units ms, s, m and h, for example 500ms, 30s or
// 1h30m. It has at most 16 characters, because without a bound the API server would reject the
// validation rules of durations as too expensive.
//
// hack/crd puts the rule below before those of each field, so that a text that is no duration gets one
// message. A stored value must be readable: otherwise it would break the decoding of a whole list.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$')",message="must be a duration such as 500ms, 30s or 1h30m"
type Duration struct {
	metav1.Duration `json:",inline"`
}

// ObservedStatus is what the status of every kind begins with.
type ObservedStatus struct {
	// conditions of the object: Ready, Reconciling and Stalled, which kstatus reads, and those of its kind.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation that the status was derived from; -1 before the first
	// reconciliation.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ObjectMetadata has labels and annotations for objects that the operator creates.
type ObjectMetadata struct {
	// labels of the objects. Keys of Yardmaster and of Kubernetes are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// annotations of the objects. Keys of Yardmaster and of Kubernetes are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// LocalReference refers to an object of the same namespace. The name of the field says of which kind.
type LocalReference struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// KeyReference refers to a key of a Secret or ConfigMap of the same namespace.
type KeyReference struct {
	LocalReference `json:",inline"`

	// key in the object. The field that has the reference names the default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
}

// Retry defines how often and when something that failed is tried again.
//
// +kubebuilder:validation:XValidation:rule="!has(self.backoff) || !has(self.maxBackoff) || duration(self.backoff) <= duration(self.maxBackoff)",message="backoff must not be longer than maxBackoff",fieldPath=".backoff"
type Retry struct {
	// limit is the number of retries, the first attempt not included, 0 to 1000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Limit *int32 `json:"limit,omitempty"`

	// backoff is the time before the first retry, 0s to 24h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="backoff must be a duration from 0s to 24h"
	Backoff *Duration `json:"backoff,omitempty"`

	// maxBackoff is the longest time before a retry, 0s to 24h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="maxBackoff must be a duration from 0s to 24h"
	MaxBackoff *Duration `json:"maxBackoff,omitempty"`

	// factor by which the time grows with each retry, 1 to 10, for example 1.5. Defaults to 2.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1.0 && self <= 10.0",message="factor must be from 1 to 10"
	Factor *Number `json:"factor,omitempty"`
}
