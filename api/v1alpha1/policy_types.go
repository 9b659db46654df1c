package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Policy gives defaults to the Queues and WorkerPools of its namespace, and sets limits to
// them. What an object says itself goes before a Policy's defaults; of several Policies
// that select it the one with the greatest precedence goes first, then the first by name.
// Of limits, always the strictest holds.
//
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

	// spec is what the Policy says.
	// +optional
	// +kubebuilder:default={}
	Spec PolicySpec `json:"spec,omitempty"`

	// status is whom it says it to.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
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

// PolicySpec is what a Policy says. Durations are written as 500ms, 30s, 10m, 1h30m.
type PolicySpec struct {
	// selector of Queues and WorkerPools by their labels. Left out: all of the namespace.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// precedence over other Policies with the same object: the greater goes first.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Precedence int32 `json:"precedence,omitempty"`

	// defaults for what an object leaves out.
	// +optional
	Defaults *PolicyDefaults `json:"defaults,omitempty"`

	// circuitBreaker of the workers. Without one in any Policy they have none.
	// +optional
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`

	// limits to what an object may ask for.
	// +optional
	Limits *PolicyLimits `json:"limits,omitempty"`
}

// PolicyDefaults are for what an object leaves out, field by field; broker, as a whole.
type PolicyDefaults struct {
	// broker of Queues.
	// +optional
	Broker *Broker `json:"broker,omitempty"`
	// retry of Queues.
	// +optional
	Retry *Retry `json:"retry,omitempty"`
	// rateLimit of Queues. It is taken as a whole.
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`
	// deadLetter of Queues.
	// +optional
	DeadLetter *DeadLetter `json:"deadLetter,omitempty"`
	// drain of WorkerPools.
	// +optional
	Drain *Drain `json:"drain,omitempty"`
}

// CircuitBreaker has a worker stop taking messages while most of them fail, as when what
// its handlers need is down.
type CircuitBreaker struct {
	// failureThresholdPercent of the messages that must fail. Default 50.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailureThresholdPercent *int32 `json:"failureThresholdPercent,omitempty"`

	// window in which they are counted, 1s to 1h. Default 1m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="window must be a duration from 1s to 1h"
	Window *Duration `json:"window,omitempty"`

	// minSamples is how many messages there must be in it. Default 20.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MinSamples *int32 `json:"minSamples,omitempty"`

	// cooldown before the worker tries again, 1s to 1h. Default 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="cooldown must be a duration from 1s to 1h"
	Cooldown *Duration `json:"cooldown,omitempty"`

	// halfOpenProbes is with how many messages it tries. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	HalfOpenProbes *int32 `json:"halfOpenProbes,omitempty"`
}

// PolicyLimits are what an object may ask for at most.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicasTotal) || !has(self.maxReplicasPerPool) || self.maxReplicasPerPool <= self.maxReplicasTotal",message="maxReplicasPerPool must not be greater than maxReplicasTotal",fieldPath=".maxReplicasPerPool"
type PolicyLimits struct {
	// maxReplicasTotal of all the pools that the Policy selects together.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxReplicasTotal *int32 `json:"maxReplicasTotal,omitempty"`

	// maxReplicasPerPool of each of them.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxReplicasPerPool *int32 `json:"maxReplicasPerPool,omitempty"`

	// maxRatePerQueue is how many messages a second may be begun of each Queue.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxRatePerQueue *int32 `json:"maxRatePerQueue,omitempty"`

	// allowedImages of workers: an image must match one, where * stands for any characters,
	// e.g. registry.example/team/*. Of several Policies with a list, it must match each.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	AllowedImages []string `json:"allowedImages,omitempty"`
}

// Reasons of a Policy's condition Ready, beside those of a default broker's Secrets, which
// Queues have too: SecretNotFound, SecretInvalid.
const (
	ReasonNothingSelected = "NothingSelected"
	ReasonSelectorInvalid = "SelectorInvalid"
)

// PolicyStatus is whom a Policy says something to.
type PolicyStatus struct {
	// conditions: Ready. It is False if the selector cannot be read, or if the Secrets of the
	// default broker are missing.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation this status was derived from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// queues it selects.
	// +optional
	// +kubebuilder:default=0
	Queues int32 `json:"queues"`
	// workerPools it selects.
	// +optional
	// +kubebuilder:default=0
	WorkerPools int32 `json:"workerPools"`
	// replicas these pools have together, against limits.maxReplicasTotal.
	// +optional
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas"`
}
