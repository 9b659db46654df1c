package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// Rerun requests another run of an object whose run has ended.
type Rerun struct {
	// id of this request, any text. The next run starts when the run has ended and the id differs from status.rerunID.
	// An id that is set at creation requests nothing.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
}

// RunStatus is about the current run of an object that can run again.
type RunStatus struct {
	// run is the number of the current run: 1, increased by each rerun.
	// +optional
	Run int32 `json:"run,omitempty"`
	// rerunID is the last spec.rerun.id that started a run, or that was set at creation.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	RerunID string `json:"rerunID,omitempty"`
	// startTime is when the run started. Resuming a SequentialJob sets it again.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when the run completed or failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// AttemptNumber identifies an attempt. Each attempt has its own Job.
type AttemptNumber struct {
	// run is the number of the run that the attempt belongs to.
	// +optional
	Run int32 `json:"run,omitempty"`
	// attempt is the number of the attempt in its run, from 1.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
}

// JobAttempt is an attempt to run something as a Job.
type JobAttempt struct {
	AttemptNumber `json:",inline"`

	// jobName is the name of the Job.
	// +optional
	JobName string `json:"jobName,omitempty"`
	// jobUID is the UID of the Job.
	// +optional
	JobUID types.UID `json:"jobUID,omitempty"`
	// startTime is when the attempt started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// finishTime is when the attempt ended.
	// +optional
	FinishTime *metav1.Time `json:"finishTime,omitempty"`
	// exitCode of the container, if known.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// reason for the state of the attempt, in CamelCase.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// WorkspaceClaim is a PersistentVolumeClaim that is created for an object.
type WorkspaceClaim struct {
	// size of the volume.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="size must be greater than zero"
	Size *resource.Quantity `json:"size,omitempty"`
	// storageClassName of the claim. Defaults to the cluster's default class.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`
	// retention is what happens to the claim when the object is deleted. Defaults to Delete.
	// +optional
	// +kubebuilder:default=Delete
	Retention WorkspaceRetention `json:"retention,omitempty"`
	// onLost is what happens when the claim was deleted or replaced after it was used. Fail fails the run; Recreate
	// goes on with an empty workspace. Defaults to Fail.
	// +optional
	// +kubebuilder:default=Fail
	OnLost LostWorkspacePolicy `json:"onLost,omitempty"`
}

// ClaimStatus is the claim of a workspace.
type ClaimStatus struct {
	// claimRef is the PersistentVolumeClaim.
	// +optional
	ClaimRef LocalReference `json:"claimRef,omitzero"`
	// uid of the claim, recorded before it is used: a claim with another UID does not contain the same files.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// Archive is where logs or transcripts are kept.
//
// +kubebuilder:validation:XValidation:rule="has(self.claimRef) != has(self.s3)",message="set exactly one of claimRef and s3"
type Archive struct {
	// claimRef is a PersistentVolumeClaim. Its access mode must allow all Pods that use it at a time.
	// +optional
	ClaimRef *LocalReference `json:"claimRef,omitempty"`
	// s3 is a bucket.
	// +optional
	S3 *ArchiveS3 `json:"s3,omitempty"`
}

// ArchiveS3 is a bucket of an object store with the API of Amazon S3.
type ArchiveS3 struct {
	// endpoint is the URL of the store, such as https://s3.eu-central-1.amazonaws.com. Network policies, such as egress of
	// a SessionRunner, must allow it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^/@?#\s]+/?$`
	Endpoint string `json:"endpoint"`

	// bucket that exists.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9][-a-z0-9.]*[a-z0-9]$`
	Bucket string `json:"bucket"`

	// prefix of the names of objects, such as agents/transcripts. Unset means none.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*/?$`
	Prefix string `json:"prefix,omitempty"`

	// region of the bucket. Defaults to us-east-1.
	// +optional
	// +kubebuilder:default=us-east-1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	Region string `json:"region,omitempty"`

	// secretRef is the Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and maybe AWS_SESSION_TOKEN. Only the
	// container that archives mounts it.
	// +required
	SecretRef LocalReference `json:"secretRef"`
}
