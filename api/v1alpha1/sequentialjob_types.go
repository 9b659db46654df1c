package v1alpha1

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SequentialJobManager is the value of spec.managedBy that means this operator, the
// same as leaving the field out.
const SequentialJobManager = Prefix + "sequentialjob-controller"

// SequentialJobFinalizer is on a SequentialJob only while one of its steps may be
// running, so that deleting it ends the running step before the object goes.
const SequentialJobFinalizer = Prefix + "terminate-step"

// SequentialJob runs containers strictly one after another, each as a native Job.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sj;seqjob,categories=all;yardmaster
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress.display`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.progress.currentStep`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.progress.failureReason`
// +kubebuilder:printcolumn:name="Run",type=integer,priority=1,JSONPath=`.status.run`
type SequentialJob struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the wanted sequence.
	// +required
	Spec SequentialJobSpec `json:"spec"`

	// status is what was observed of the sequence's Jobs.
	// +optional
	Status SequentialJobStatus `json:"status,omitempty"`
}

// SequentialJobList is a list of SequentialJobs.
//
// +kubebuilder:object:root=true
type SequentialJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SequentialJob `json:"items"`
}

// SequentialJobSpec is the wanted sequence.
//
// +kubebuilder:validation:XValidation:rule="!has(self.finally) || self.finally.all(f, !self.containers.exists(c, c.name == f.name))",message="step names must be unique across containers and finally",fieldPath=".finally"
// +kubebuilder:validation:XValidation:rule="has(self.workspace) == has(oldSelf.workspace)",message="workspace is immutable: it cannot be added or removed",fieldPath=".workspace"
// +kubebuilder:validation:XValidation:rule="has(self.managedBy) == has(oldSelf.managedBy)",message="managedBy is immutable: it cannot be added or removed",fieldPath=".managedBy"
// +kubebuilder:validation:XValidation:rule="!has(self.rerun) || !has(self.rerun.from) || self.rerun.from in ['Failed', 'Start'] || self.containers.exists(c, c.name == self.rerun.from)",message="rerun.from must be Failed, Start or the name of a step in containers",fieldPath=".rerun.from"
type SequentialJobSpec struct {
	// containers are the steps, run in this order. Each is a whole Kubernetes
	// container, plus an optional object `step` that says how it is run as a Job.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Containers []Step `json:"containers"`

	// finally are steps that run in this order after the others, whether those
	// succeeded, failed or were stopped by activeDeadlineSeconds. One that fails
	// makes the run fail.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Finally []Step `json:"finally,omitempty"`

	// template is the Pod every step starts from: metadata, volumes, security
	// context, node selection, pull secrets, init containers and so on. It may hold
	// one container, named `step`, that gives defaults to every step.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.containers) || self.spec.containers.all(c, c.name == 'step')",message="the only container a template may hold is one named step, which gives defaults to every step; a sidecar goes into initContainers with restartPolicy: Always",fieldPath=".spec.containers"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.restartPolicy) || self.spec.restartPolicy in ['Never', 'OnFailure']",message="restartPolicy must be Never or OnFailure: a Job cannot run Pods with Always",fieldPath=".spec.restartPolicy"
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// jobMetadata is put on every child Job, e.g. the label
	// kueue.x-k8s.io/queue-name, by which a queue admits each step on its own.
	// +optional
	JobMetadata *JobMetadata `json:"jobMetadata,omitempty"`

	// suspend holds the sequence. Setting it back to false lets it go on.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// suspendPolicy says what suspend does to a running step. AfterCurrent lets it
	// end and starts no other; Immediate ends its Pods, and runs that step again
	// when the sequence is resumed.
	// +optional
	// +kubebuilder:default=AfterCurrent
	SuspendPolicy SuspendPolicy `json:"suspendPolicy,omitempty"`

	// activeDeadlineSeconds bounds the run, in seconds from its start; as in
	// batch/v1 the clock starts anew when a suspended run is resumed. A run that
	// exceeds it is stopped and fails; its finally steps still run.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished deletes the SequentialJob, and all it owns, this many
	// seconds after its run ended. Left out: it is kept.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// workspace is a volume made for this SequentialJob and mounted in every step,
	// so that one step finds what an earlier one left.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="workspace is immutable"
	Workspace *Workspace `json:"workspace,omitempty"`

	// rerun starts a finished run again when its id changes.
	// +optional
	Rerun *Rerun `json:"rerun,omitempty"`

	// onLostJob says what happens when a step's Job vanished before its outcome was
	// recorded, so that nobody can tell whether it did its work. Fail fails the
	// step; Rerun runs it again.
	// +optional
	// +kubebuilder:default=Fail
	OnLostJob LostJobPolicy `json:"onLostJob,omitempty"`

	// managedBy names the controller that reconciles this object. Left out or
	// yardmaster.dev/sequentialjob-controller: this operator. Anything else: this
	// operator does nothing with it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="managedBy is immutable"
	// +kubebuilder:validation:XValidation:rule="self.contains('/')",message="managedBy must be a domain-prefixed path such as acme.io/controller"
	ManagedBy *string `json:"managedBy,omitempty"`
}

// Step is one step of a sequence: a container, and how it is run as a Job.
//
// Name stands here again, over the container's own, so that the API server knows
// its limits; Container.Name stays empty after decoding. Use AsContainer for the whole.
//
// +kubebuilder:validation:XValidation:rule="!has(self.restartPolicy) || self.restartPolicy != 'Always'",message="a step's restartPolicy cannot be Always: its Job would never complete; a sidecar goes into template.spec.initContainers",fieldPath=".restartPolicy"
type Step struct {
	// name of the step, unique in the SequentialJob: a DNS label of at most 30
	// characters. It is also the name of the container in the step's Pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	corev1.Container `json:",inline"`

	// step says how the container is run as a Job.
	// +optional
	Step *StepOptions `json:"step,omitempty"`
}

// AsContainer is the step's container under the step's name.
func (s *Step) AsContainer() *corev1.Container {
	c := s.Container.DeepCopy()
	c.Name = s.Name
	return c
}

// Options are the step's options, never nil.
func (s *Step) Options() *StepOptions {
	if s.Step == nil {
		return &StepOptions{}
	}
	return s.Step
}

// StepOptions says how a step's container is run as a Job.
//
// +kubebuilder:validation:XValidation:rule="!has(self.outputs) || !self.outputs || ((!has(self.completions) || self.completions == 1) && (!has(self.parallelism) || self.parallelism == 1))",message="outputs needs a step that runs one Pod: completions and parallelism of 1",fieldPath=".outputs"
// +kubebuilder:validation:XValidation:rule="!has(self.completionMode) || self.completionMode != 'Indexed' || has(self.completions)",message="completions is required when completionMode is Indexed",fieldPath=".completions"
type StepOptions struct {
	// backoffLimit is how many times a failed Pod of the step is replaced.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// activeDeadlineSeconds bounds the step, retries included, in seconds.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// startDeadlineSeconds fails the step when none of its Pods has started a
	// container this many seconds after the Job was: an image that cannot be
	// pulled, a Pod that fits no node. Left out: it waits for ever.
	// +optional
	// +kubebuilder:validation:Minimum=1
	StartDeadlineSeconds *int64 `json:"startDeadlineSeconds,omitempty"`

	// podFailurePolicy is batch/v1's: which Pod failures count, which end the step
	// at once. It needs the template's restartPolicy to be Never.
	// +optional
	PodFailurePolicy *batchv1.PodFailurePolicy `json:"podFailurePolicy,omitempty"`

	// onFailure says what the step's failure means for the sequence. Stop skips the
	// steps after it and fails the run; Continue goes on as if it had succeeded.
	// +optional
	// +kubebuilder:default=Stop
	OnFailure FailureAction `json:"onFailure,omitempty"`

	// parallelism is how many Pods of the step run at once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Parallelism *int32 `json:"parallelism,omitempty"`

	// completions is how many Pods of the step must succeed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Completions *int32 `json:"completions,omitempty"`

	// completionMode is batch/v1's: NonIndexed or Indexed.
	// +optional
	// +kubebuilder:validation:Enum=NonIndexed;Indexed
	CompletionMode *batchv1.CompletionMode `json:"completionMode,omitempty"`

	// outputs records what the step wrote to its termination message (at most 4096
	// bytes; newlines at its end are dropped) and gives it to later steps as the environment variable
	// STEP_<NAME>_OUTPUT, the name in capitals with _ for -.
	// +optional
	Outputs bool `json:"outputs,omitempty"`
}

// JobMetadata is metadata for child Jobs.
type JobMetadata struct {
	// labels for every child Job.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations for every child Job.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Workspace is a PersistentVolumeClaim made for one SequentialJob.
type Workspace struct {
	// size of the volume.
	// +required
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).isGreaterThan(quantity('0'))",message="size must be greater than zero"
	Size resource.Quantity `json:"size"`

	// storageClassName of the claim. Left out: the cluster's default class.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// accessMode of the claim.
	// +optional
	// +kubebuilder:default=ReadWriteOnce
	// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteMany;ReadWriteOncePod
	AccessMode corev1.PersistentVolumeAccessMode `json:"accessMode,omitempty"`

	// mountPath is where every step finds the volume.
	// +optional
	// +kubebuilder:default=/workspace
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^:]+$`
	MountPath string `json:"mountPath,omitempty"`

	// retention says what becomes of the claim when the SequentialJob is deleted.
	// +optional
	// +kubebuilder:default=Delete
	Retention WorkspaceRetention `json:"retention,omitempty"`
}

// Rerun asks for a finished run to be run again.
type Rerun struct {
	// id of this request, any text. A finished run starts again when the id differs
	// from the one it last saw; an id there from the beginning asks for nothing.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// from is where to begin: Failed (the first step that failed), Start, or a
	// step's name. Steps before it keep their outcome.
	// +optional
	// +kubebuilder:default=Failed
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	From string `json:"from,omitempty"`
}

// Where a rerun begins, when not at a step's name.
const (
	RerunFromFailed = "Failed"
	RerunFromStart  = "Start"
)

// SuspendPolicy says what suspending does to a running step.
// +kubebuilder:validation:Enum=AfterCurrent;Immediate
type SuspendPolicy string

// The suspend policies.
const (
	SuspendAfterCurrent SuspendPolicy = "AfterCurrent"
	SuspendImmediate    SuspendPolicy = "Immediate"
)

// FailureAction says what a step's failure means for the sequence.
// +kubebuilder:validation:Enum=Stop;Continue
type FailureAction string

// The failure actions.
const (
	OnFailureStop     FailureAction = "Stop"
	OnFailureContinue FailureAction = "Continue"
)

// LostJobPolicy says what happens to a step whose Job vanished.
// +kubebuilder:validation:Enum=Fail;Rerun
type LostJobPolicy string

// The lost-Job policies.
const (
	LostJobFail  LostJobPolicy = "Fail"
	LostJobRerun LostJobPolicy = "Rerun"
)

// WorkspaceRetention says what becomes of a workspace.
// +kubebuilder:validation:Enum=Delete;Retain
type WorkspaceRetention string

// The workspace retentions.
const (
	WorkspaceDelete WorkspaceRetention = "Delete"
	WorkspaceRetain WorkspaceRetention = "Retain"
)
