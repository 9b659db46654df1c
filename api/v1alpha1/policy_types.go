package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Policy sets defaults and limits for the Queues and WorkerPools of its namespace. The spec of an
// object takes precedence over the defaults of Policies. If several Policies select an object, the
// one with the highest precedence applies first, then the first by name. Of several limits, the
// strictest applies.
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
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
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
	// selector of Queues and WorkerPools by their labels. If it is omitted, the Policy selects all
	// of the namespace.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// precedence over other Policies that select the same object, -1000 to 1000. A higher value
	// takes precedence. Default 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Precedence int32 `json:"precedence,omitempty"`

	// defaults for fields that an object omits.
	// +optional
	Defaults *PolicyDefaults `json:"defaults,omitempty"`

	// circuitBreaker of the workers. Workers have none unless a Policy sets it.
	// +optional
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`

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

// CircuitBreaker stops a worker from taking messages while most of them fail, for example because
// a dependency is down.
type CircuitBreaker struct {
	// failureThresholdPercent is the percentage of messages that must fail to open the circuit, 1
	// to 100. Default 50.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailureThresholdPercent *int32 `json:"failureThresholdPercent,omitempty"`

	// window in which failures are counted, 1s to 1h. Default 1m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="window must be a duration from 1s to 1h"
	Window *Duration `json:"window,omitempty"`

	// minSamples is the minimum number of messages in the window. Default 20.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MinSamples *int32 `json:"minSamples,omitempty"`

	// cooldown before the worker tries again, 1s to 1h. Default 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="cooldown must be a duration from 1s to 1h"
	Cooldown *Duration `json:"cooldown,omitempty"`

	// halfOpenProbes is the number of messages to try after the cooldown, 1 to 1000. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	HalfOpenProbes *int32 `json:"halfOpenProbes,omitempty"`
}

// PolicyLimits are limits on what an object may ask for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicasTotal) || !has(self.maxReplicasPerPool) || self.maxReplicasPerPool <= self.maxReplicasTotal",message="maxReplicasPerPool must not be greater than maxReplicasTotal",fieldPath=".maxReplicasPerPool"
type PolicyLimits struct {
	// maxReplicasTotal is the upper bound on the workers of all selected WorkerPools together.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxReplicasTotal *int32 `json:"maxReplicasTotal,omitempty"`

	// maxReplicasPerPool is the upper bound on the workers of each selected WorkerPool.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxReplicasPerPool *int32 `json:"maxReplicasPerPool,omitempty"`

	// maxRatePerQueue is the upper bound on the messages that are started from each Queue, per
	// second.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxRatePerQueue *int32 `json:"maxRatePerQueue,omitempty"`

	// allowedImages for the Pods of WorkerPools, SequentialJobs and AgenticSessions, as patterns in
	// which * matches any characters, such as registry.example/team/*. Each image must match one
	// of them. If several Policies set patterns, an image must match a pattern of each.
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
	// replicas is the number of workers of the selected WorkerPools, which limits.maxReplicasTotal
	// limits.
	// +optional
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas"`
}
