package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
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

// NewDuration returns a pointer to a Duration.
func NewDuration(d time.Duration) *Duration { return &Duration{metav1.Duration{Duration: d}} }

// ObservedStatus is what the status of every kind begins with.
type ObservedStatus struct {
	// conditions such as Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ObjectMetadata has labels and annotations for objects that the operator creates.
type ObjectMetadata struct {
	// labels without reserved keys.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// annotations without reserved keys.
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

	// key in the object.
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
	// limit of retries, 0 to 1000, unless the description of retry has other bounds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Limit *int32 `json:"limit,omitempty"`

	// backoff before the first retry, 0s to 24h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="backoff must be a duration from 0s to 24h"
	Backoff *Duration `json:"backoff,omitempty"`

	// maxBackoff is the longest backoff, 0s to 24h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="maxBackoff must be a duration from 0s to 24h"
	MaxBackoff *Duration `json:"maxBackoff,omitempty"`

	// factor of each further backoff, 1 to 10. Defaults to 2.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1.0 && self <= 10.0",message="factor must be from 1 to 10"
	Factor *Number `json:"factor,omitempty"`
}

// Rerun requests another run of an object whose run has ended.
type Rerun struct {
	// id of the request. A new id is a new request.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
}

// RunStatus is about the current run of an object that can run again.
type RunStatus struct {
	// run number, from 1.
	// +optional
	Run int32 `json:"run,omitempty"`
	// rerunID of the current run.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	RerunID string `json:"rerunID,omitempty"`
	Times   `json:",inline"`
}

// Times are when something started and ended.
type Times struct {
	// startTime of the run or its resumption, or of the attempt.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime of the run or attempt.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// Explanation says why something is as it is.
type Explanation struct {
	// reason in CamelCase.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// AttemptNumber identifies an attempt. Each attempt has its own Job.
type AttemptNumber struct {
	// run of the attempt.
	// +optional
	Run int32 `json:"run,omitempty"`
	// attempt number, from 1.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
}

// JobAttempt is an attempt to run something as a Job.
type JobAttempt struct {
	AttemptNumber `json:",inline"`

	// jobName of the attempt.
	// +optional
	JobName string `json:"jobName,omitempty"`
	// jobUID of the attempt.
	// +optional
	JobUID types.UID `json:"jobUID,omitempty"`
	Times  `json:",inline"`
	// exitCode of the container.
	// +optional
	ExitCode    *int32 `json:"exitCode,omitempty"`
	Explanation `json:",inline"`
}

// WorkspaceClaim is a PersistentVolumeClaim that is created for an object. Immutable, except onLost.
//
// +kubebuilder:validation:XValidation:rule="has(self.size) == has(oldSelf.size) && (!has(self.size) || self.size == oldSelf.size) && self.retention == oldSelf.retention",message="workspace is immutable, except onLost"
type WorkspaceClaim struct {
	// size of the volume.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="size must be greater than zero"
	Size *resource.Quantity `json:"size,omitempty"`
	// retention of the claim: Delete or Retain. Defaults to Delete.
	// +optional
	// +kubebuilder:default=Delete
	Retention WorkspaceRetention `json:"retention,omitempty"`
	// onLost is what happens if the claim is lost: Fail, or Recreate, which begins again with an empty one. Defaults to
	// Fail.
	// +optional
	// +kubebuilder:default=Fail
	OnLost LostWorkspacePolicy `json:"onLost,omitempty"`
}

// WorkspaceVolume is the volume behind a workspace.
type WorkspaceVolume struct {
	// storageClassName of the claim. Defaults to that of the cluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// accessMode of the claim: ReadWriteOnce, ReadWriteMany or ReadWriteOncePod. Defaults to ReadWriteOnce.
	// +optional
	// +kubebuilder:default=ReadWriteOnce
	// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteMany;ReadWriteOncePod
	AccessMode corev1.PersistentVolumeAccessMode `json:"accessMode,omitempty"`
}

// LostWorkspacePolicy is what happens to a run whose workspace was deleted or replaced.
// +kubebuilder:validation:Enum=Fail;Recreate
type LostWorkspacePolicy string

// The lost-workspace policies.
const (
	LostWorkspaceFail     LostWorkspacePolicy = "Fail"
	LostWorkspaceRecreate LostWorkspacePolicy = "Recreate"
)

// WorkspaceRetention is what happens to a workspace when its owner is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type WorkspaceRetention string

// The workspace retentions.
const (
	WorkspaceDelete WorkspaceRetention = "Delete"
	WorkspaceRetain WorkspaceRetention = "Retain"
)

// ClaimStatus is the claim of a workspace.
type ClaimStatus struct {
	// claimRef is the claim.
	// +optional
	ClaimRef LocalReference `json:"claimRef,omitzero"`
	// uid of the claim.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// Archive is where logs or transcripts are kept.
//
// +kubebuilder:validation:XValidation:rule="has(self.claimRef) != has(self.s3)",message="set exactly one of claimRef and s3"
type Archive struct {
	// claimRef is a PersistentVolumeClaim for all Pods.
	// +optional
	ClaimRef *LocalReference `json:"claimRef,omitempty"`
	// s3 is a bucket.
	// +optional
	S3 *ArchiveS3 `json:"s3,omitempty"`
}

// ArchiveResult is where logs or a transcript are archived, or why they are not.
type ArchiveResult struct {
	// location in the claim, or an s3:// URL.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Location string `json:"location,omitempty"`
	// truncated means that the end is omitted.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
	// error is why nothing is archived.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Error string `json:"error,omitempty"`
}

// ArchiveS3 is a bucket of an object store with the API of Amazon S3.
type ArchiveS3 struct {
	// endpoint, such as https://s3.eu-central-1.amazonaws.com.
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

	// prefix of names. Unset means none.
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

	// secretRef has AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and maybe AWS_SESSION_TOKEN.
	// +required
	SecretRef LocalReference `json:"secretRef"`
}
