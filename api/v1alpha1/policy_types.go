package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Policy sets defaults and limits for the Queues and WorkerPools of its namespace. Of several Policies, the
// highest precedence applies first, then the first by name; of several limits, the strictest.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wqp,categories=yardmaster
// +kubebuilder:printcolumn:name="Precedence",type=integer,JSONPath=`.spec.precedence`
// +kubebuilder:printcolumn:name="Queues",type=integer,JSONPath=`.status.queues`
// +kubebuilder:printcolumn:name="Pools",type=integer,JSONPath=`.status.workerPools`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.limits.maxReplicasTotal`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Policy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec of the Policy.
	// +optional
	// +kubebuilder:default={}
	Spec PolicySpec `json:"spec,omitempty"`

	// status reports what the Policy selects.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	// +structType=atomic
	Status PolicyStatus `json:"status,omitempty"`
}

// PolicyList is a list of Policies.
//
// +kubebuilder:object:root=true
type PolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Policy `json:"items"`
}

// PolicySpec contains the defaults and limits of a Policy. Durations are written as 500ms, 30s,
// 10m or 1h30m.
type PolicySpec struct {
	// selector of Queues and WorkerPools by their labels, and of SequentialJobs and AgenticSessions for allowedImages.
	// Unset means all of the namespace.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// precedence over other Policies for the same object, -1000 to 1000: higher values first. Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Precedence int32 `json:"precedence,omitempty"`

	// defaults for fields that an object omits.
	// +optional
	Defaults *PolicyDefaults `json:"defaults,omitempty"`

	// limits on what an object may ask for.
	// +optional
	Limits *PolicyLimits `json:"limits,omitempty"`
}

// PolicyDefaults are defaults for fields that an object omits. Each field applies on its own,
// except broker and rateLimit, which apply as a whole.
type PolicyDefaults struct {
	QueueSettings  `json:",inline"`
	WorkerSettings `json:",inline"`
}

// PolicyLimits are limits on what an object may ask for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicasTotal) || !has(self.maxReplicasPerPool) || self.maxReplicasPerPool <= self.maxReplicasTotal",message="maxReplicasPerPool must not be greater than maxReplicasTotal",fieldPath=".maxReplicasPerPool"
type PolicyLimits struct {
	// maxReplicasTotal bounds the workers of all selected WorkerPools together, 0 to 100000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxReplicasTotal *int32 `json:"maxReplicasTotal,omitempty"`

	// maxReplicasPerPool bounds the workers of each selected WorkerPool, 0 to 10000.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxReplicasPerPool *int32 `json:"maxReplicasPerPool,omitempty"`

	// maxRatePerQueue bounds the average rate of each Queue in messages per second, 1 to 1000000. A Queue keeps its burst.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxRatePerQueue *int32 `json:"maxRatePerQueue,omitempty"`

	// allowedImages of Pods, as patterns in which * matches any characters, such as registry.example/team/*. An image
	// must match a pattern of each Policy that sets some.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	AllowedImages []string `json:"allowedImages,omitempty"`
}

// Reasons of a Policy's condition Ready, in addition to SecretNotFound and SecretInvalid for the
// Secrets of its default broker.
const (
	ReasonNothingSelected = "NothingSelected"
	ReasonSelectorInvalid = "SelectorInvalid"
)

// PolicyStatus reports what a Policy selects.
type PolicyStatus struct {
	ObservedStatus `json:",inline"`

	// queues is the number of selected Queues.
	// +optional
	// +kubebuilder:default=0
	Queues int32 `json:"queues"`
	// workerPools is the number of selected WorkerPools.
	// +optional
	// +kubebuilder:default=0
	WorkerPools int32 `json:"workerPools"`
	// replicas is the number of workers of the selected WorkerPools.
	// +optional
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas"`
}
