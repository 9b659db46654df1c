package session

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Observation is all that a decision rests on. Decide changes nothing of it.
type Observation struct {
	// Session as last read. It may be stale: the plan's status is written over exactly this
	// version or not at all.
	Session *v1alpha1.AgenticSession
	// Runner that the session names; nil if there is none.
	Runner *v1alpha1.SessionRunner
	// Parent that the session continues; nil if it names none, or there is none.
	Parent *v1alpha1.AgenticSession
	// WorkspaceUser is another session that has a Job in the same workspace; empty if none
	// has.
	WorkspaceUser string
	// Jobs whose controller is the session, as last seen, and their Pods. They may be stale,
	// and a Job that is missing may exist.
	Jobs []*batchv1.Job
	Pods []corev1.Pod
	// NetworkPolicy of the session as last seen; nil if there is none.
	NetworkPolicy *networkingv1.NetworkPolicy
	// Activity is what the runner's Lease says; nil if there is none.
	Activity *Activity
	// CreatedJobs are the UIDs of the Jobs that this process made, by name.
	CreatedJobs map[string]types.UID
	// Now is the time of the decision.
	Now time.Time
	// Answers to the questions that earlier calls with this input asked.
	Answers Answers
	// Refusal is what the API server refused when this input's plan was carried out.
	Refusal *Refusal
}

// Activity is what a runner tells through its Lease.
type Activity struct {
	// RenewTime is when it last did something.
	RenewTime time.Time
	// FinishedJob is the Job whose runner has finished what it was at; empty if none has.
	FinishedJob string
}

// Question is what Decide must know before it can plan. One field is set.
type Question struct {
	// JobName asks for a live read of the Job of this name.
	JobName string
	// AllJobs asks for a live list of the Jobs that the session controls, with their Pods.
	AllJobs bool
}

// Answers hold what was found out for questions.
type Answers struct {
	// Jobs are the Jobs of ours that live reads found, by name; nil where there is none.
	Jobs map[string]*batchv1.Job
	// Listed says that Input.Jobs came from a live list.
	Listed bool
}

// RefusalKind says what a refusal means.
type RefusalKind string

// The kinds of refusal.
const (
	// RefusedInvalid: the object can never be made as it is.
	RefusedInvalid RefusalKind = "Invalid"
	// RefusedQuota: it can be made when a quota has room again.
	RefusedQuota RefusalKind = "Quota"
	// RefusedForeign: its name belongs to an object that is not ours.
	RefusedForeign RefusalKind = "Foreign"
)

// Refusal is an object that the API server did not take.
type Refusal struct {
	Kind RefusalKind
	// Object is the kind of what was refused: Pod if it was the dry run.
	Object string
	// Message of the API server.
	Message string
}

// Object is one of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Decision is what to do: first record Status, then the rest in the order of the fields.
type Decision struct {
	// Question, when set, must be answered before anything is done.
	Question *Question

	// Status to record. Nothing else of the plan may happen if that fails.
	Status v1alpha1.AgenticSessionStatus
	// Events to tell, now that the status is stored.
	Events []Event
	// DeleteJobs are Jobs to delete in the foreground, so that they are gone only when their
	// Pods are; each only as it was seen.
	DeleteJobs []*batchv1.Job
	// ApplyObjects objects in this order. None may be somebody else's.
	ApplyObjects []Object
	// ShareClaim is a claim of another session, whose owner the session becomes as well, so that it
	// stays as long as both.
	ShareClaim string
	// DryRunPod is a Pod to try before its Job is made.
	DryRunPod *corev1.Pod
	// CreateJob is the Job to make.
	CreateJob *batchv1.Job
	// DeleteSecret is one with inputs that nothing uses any more.
	DeleteSecret string
	// DeleteSession says that the session's time to live is over: delete it.
	DeleteSession bool
	// RequeueAfter is when to decide again if nothing happens before; 0 is never.
	RequeueAfter time.Duration
}

// Event is something worth telling the people who watch a session.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type    string
	Reason  string
	Action  string
	Message string
}
