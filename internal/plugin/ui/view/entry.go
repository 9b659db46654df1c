package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// Level is how much attention an object or a step needs.
type Level int

// The levels.
const (
	LevelNone Level = iota // has not started, or is unknown
	LevelGood
	LevelActive
	LevelWaiting // paused or suspended by a user, or waits
	LevelProblem
)

// String returns the name of the level in the style sheet.
func (l Level) String() string {
	return [...]string{"none", "good", "active", "waiting", "problem"}[l]
}

// Entry is an object with a summary of its state. It is never changed.
type Entry struct {
	Kind            *Kind
	Namespace, Name string
	// Object is the object without the fields that Slim removes.
	Object  any
	Created time.Time

	// Status is one word, such as Running.
	Status string
	Level  Level
	// Reason and Message describe the problem, or why the object waits.
	Reason, Message string
	// Since is when the status or problem began; zero if unknown.
	Since time.Time
	// Finished is when the last run ended; zero without an ended run.
	Finished time.Time
	// Asks is set if the object waits for a decision of a user.
	Asks bool
	// NeedsAttention is set if a user has to act.
	NeedsAttention bool
	// OfRun is set if a Schedule needs attention only because of its last run.
	OfRun bool
}

// NewEntry summarizes an object. It returns nil for objects of other kinds.
func NewEntry(object any) *Entry {
	switch object := object.(type) {
	case *v1alpha1.SequentialJob:
		return sequenceEntry(object)
	case *v1alpha1.AgenticSession:
		return sessionEntry(object)
	case *v1alpha1.Queue:
		return queueEntry(object)
	case *v1alpha1.WorkerPool:
		e := newEntry(Pools, object)
		e.setReady(object, object.Status.Conditions)
		e.setProblems(render.PoolProblems(object))
		return e
	case *v1alpha1.Schedule:
		return scheduleEntry(object)
	default:
		return nil
	}
}

func newEntry(kind *Kind, object metav1.Object) *Entry {
	return &Entry{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), Object: object, Created: object.GetCreationTimestamp().Time}
}

// setReady sets the state from the condition Ready, which every kind has.
func (e *Entry) setReady(object metav1.Object, conditions []metav1.Condition) {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	switch {
	case !object.GetDeletionTimestamp().IsZero():
		e.Status, e.Level, e.Since = v1alpha1.ReasonDeleting, LevelWaiting, object.GetDeletionTimestamp().Time
	case ready == nil:
		e.Status, e.Since = "Pending", object.GetCreationTimestamp().Time
	case ready.Reason == v1alpha1.ReasonSuspended:
		e.Status, e.Level, e.Since = ready.Reason, LevelWaiting, ready.LastTransitionTime.Time
	case ready.Status == metav1.ConditionTrue:
		e.Status, e.Level, e.Since = cleanLine(ready.Reason), LevelGood, ready.LastTransitionTime.Time
	default:
		e.Status, e.Level, e.Since = cmp.Or(cleanLine(ready.Reason), string(ready.Status)), LevelProblem, ready.LastTransitionTime.Time
		e.Message = cleanLine(ready.Message)
		e.NeedsAttention = ready.Status == metav1.ConditionFalse
	}
}

// setProblems shows the first problem.
func (e *Entry) setProblems(problems []render.Problem) {
	if len(problems) > 0 {
		e.setProblem(problems[0].Reason, problems[0].Message, problems[0].Since)
	}
}

// setProblem shows a problem. Its reason is the status of an object that otherwise works: such an object does not look good anywhere.
func (e *Entry) setProblem(reason, message string, since time.Time) {
	if e.Level == LevelGood {
		e.Status = reason
	}
	e.Level, e.Reason, e.Message, e.Since, e.NeedsAttention = LevelProblem, reason, message, since, true
}

// Matches reports whether the name, namespace, status or reason contain the text.
func (e *Entry) Matches(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc([]string{e.Name, e.Namespace, e.Status, e.Reason}, func(field string) bool {
		return strings.Contains(strings.ToLower(field), text)
	})
}

// CompareEntries orders entries that need attention first, then by namespace and name.
func CompareEntries(a, b *Entry) int {
	return cmp.Or(decision.CompareTrueFirst(a.NeedsAttention, b.NeedsAttention), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Condition is a condition of an object.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time
}

func newConditions(conditions []metav1.Condition) []Condition {
	var all []Condition
	for i := range conditions {
		c := &conditions[i]
		all = append(all, Condition{cleanLine(c.Type), string(c.Status), cleanLine(c.Reason), cleanLine(c.Message), c.LastTransitionTime.Time})
	}
	return all
}

// Kind is a kind of object with pages.
type Kind struct {
	// Path is part of the URL and the name of the command, such as seq.
	Path string
	// Title is the title of its list, such as Sequences.
	Title string
	// Name is the kind in the API, such as SequentialJob.
	Name string
	// Word is the kind in a sentence, such as sequence.
	Word string
	// Resource is its plural in the API, such as sequentialjobs.
	Resource string
}

// The kinds, in the order of the navigation.
var (
	Sequences = &Kind{"seq", "Sequences", "SequentialJob", "sequence", "sequentialjobs"}
	Sessions  = &Kind{"session", "Sessions", "AgenticSession", "session", "agenticsessions"}
	Queues    = &Kind{"queue", "Queues", "Queue", "queue", "queues"}
	Pools     = &Kind{"pool", "Pools", "WorkerPool", "pool", "workerpools"}
	Schedules = &Kind{"schedule", "Schedules", "Schedule", "schedule", "schedules"}
)

// Kinds are all kinds.
var Kinds = []*Kind{Sequences, Sessions, Queues, Pools, Schedules}

// KindOf returns the kind with the path, or nil.
func KindOf(path string) *Kind {
	for _, kind := range Kinds {
		if kind.Path == path {
			return kind
		}
	}
	return nil
}
