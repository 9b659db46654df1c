package agenticsession

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
)

// Observation is everything that a decision depends on. Decide does not change it.
type Observation struct {
	// Session as last read. It may be stale: the decision's status is written only over this version.
	Session *v1alpha1.AgenticSession
	// Runner that the session names; nil if it does not exist.
	Runner *v1alpha1.SessionRunner
	// Policies that select the session. They limit the images of its Pod.
	Policies policy.Selection
	// Network has the properties of the cluster's network.
	Network NetworkSettings
	// NetworkCheck has the image and the addresses that the network check of the session's Pod needs.
	NetworkCheck NetworkCheck
	// Keys sign the session's token for the egress proxy; nil if the operator has no key or the session needs no token.
	Keys *adminauth.Keys
	// Parent is the session that spec.continueFrom names; nil if it does not exist.
	Parent *v1alpha1.AgenticSession
	// WorkspaceUser is the name of another session that has a Job in the same workspace.
	WorkspaceUser string
	// Jobs that the session controls, and their Pods. The cache may be stale: other Jobs may exist.
	Jobs []*batchv1.Job
	Pods []corev1.Pod
	// DeletedPod is the UID of the Pod in Pods that was deleted, but is remembered; empty if all exist.
	DeletedPod types.UID
	// Children are the other objects of the session that the cache contains, if an attempt is open. Secrets and claims
	// are not among them.
	Children map[ChildKey]bool
	// NetworkPolicies of the namespace, at least all that select the session's Pods.
	NetworkPolicies []networkingv1.NetworkPolicy
	// Unprotected is why admission policies do not protect the users of sessions, if no attempt is open; empty if they do.
	Unprotected string
	// Capacity of the SessionRunner, if it has a limit and no attempt is open.
	Capacity Capacity
	// Activity that the runner's Lease shows; nil without a Lease.
	Activity *Activity
	// CreatedJobs are the UIDs of the Jobs that this process created, by name.
	CreatedJobs map[string]types.UID
	// Now is the time of the decision.
	Now time.Time
	// Answers to the questions of earlier calls with this observation.
	Answers Answers
	// Refusal is the object that the API server refused when the last decision on this observation was executed, or
	// nil.
	Refusal *decision.Refusal
}

// Activity is the report of a runner in its Lease.
type Activity struct {
	// RenewTime is the time of the last activity, as the runner wrote it; zero if it wrote none. It may be any time.
	RenewTime time.Time
	// ObservedTime is when this process first observed RenewTime.
	ObservedTime time.Time
	// CreationTime is when the Lease was created.
	CreationTime time.Time
	// FinishedJob is the Job whose runner reported that its run is finished.
	FinishedJob string
	// Cost that runners reported.
	Cost CostReport
}

// ChildKey identifies an object in the session's namespace.
type ChildKey struct{ Kind, Name string }

// Question is a fact that Decide needs. Exactly one field is set.
type Question struct {
	// JobName requests a live read of the Job with this name.
	JobName string
	// AllJobs requests a live list of the Jobs that the session controls, and their Pods.
	AllJobs bool
	// OpenSessions requests Capacity with all open sessions, including those that earlier processes started.
	OpenSessions bool
	// Claim requests a live read of the metadata of the PersistentVolumeClaim with this name.
	Claim string
	// Mounts requests a live list of all Pods that mount the claim with this name and have not ended. Claim is
	// requested before.
	Mounts string
	// Secret requests a live read of the metadata of the session's Secret with this name.
	Secret string
}

// Answers to questions.
type Answers struct {
	// Jobs of the session that live reads returned, by name; nil if the Job does not exist.
	Jobs map[string]*batchv1.Job
	// Claims that live reads returned, by name; nil if the claim does not exist.
	Claims map[string]*metav1.PartialObjectMetadata
	// Mounts are the Pods that mount a claim, by the claim's name.
	Mounts map[string][]corev1.Pod
	// Secrets reports whether the session's Secrets exist, by name.
	Secrets map[string]bool
	// Listed means that Observation.Jobs comes from a live list.
	Listed bool
}

// Decision has the next actions: first record Status, then execute the rest in the order of the
// fields.
type Decision struct {
	// Question, if set, must be answered first. The other fields are then not valid.
	Question *Question

	// Status to record. If the write fails, nothing else of the decision may be executed.
	Status v1alpha1.AgenticSessionStatus
	// Events to emit after the status is stored.
	Events []decision.Event
	// DeleteJobs are Jobs to delete in the foreground, so that each exists until its Pods are deleted, and only in the
	// observed version.
	DeleteJobs []*batchv1.Job
	// SetDeadline changes the deadline of the open attempt's Job.
	SetDeadline *JobDeadline
	// ApplyObjects are applied in this order, unless an object of another owner has its name.
	ApplyObjects []decision.Object
	// ShareClaim is a claim of another session. The session becomes an owner too, so that the claim exists as long as
	// any of its owners.
	ShareClaim *metav1.PartialObjectMetadata
	// KeepClaim is a claim that no longer belongs to sessions, because it may have the only copy of work.
	KeepClaim *metav1.PartialObjectMetadata
	// ReserveWorkspace lets the open attempt's Pod run in its workspace.
	ReserveWorkspace *WorkspaceReservation
	// DryRunPod is a Pod to create with dry run before its Job is created.
	DryRunPod *corev1.Pod
	// CreateJob is the Job to create.
	CreateJob *batchv1.Job
	// DeleteSecret is the name of an inputs Secret that is no longer used.
	DeleteSecret string
	// DeleteSession means that the session's time to live has passed.
	DeleteSession bool
	// RequeueAfter is when to decide again if nothing else happens before; 0 means never.
	RequeueAfter time.Duration
}

// ChangesJobs reports whether the decision creates, changes or deletes a Job, or deletes the session.
func (d *Decision) ChangesJobs() bool {
	return len(d.DeleteJobs) > 0 || d.CreateJob != nil || d.SetDeadline != nil || d.DeleteSession
}

// ChangesStatus reports whether the decision's status differs from the stored status.
func (d *Decision) ChangesStatus(s *v1alpha1.AgenticSession) bool {
	return !equality.Semantic.DeepEqual(s.Status, d.Status)
}
