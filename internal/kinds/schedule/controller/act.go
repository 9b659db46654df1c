package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// Act implements kube.Kind.
func (r *Reconciler) Act(ctx context.Context, s *v1alpha1.Schedule, observation *schedule.Observation, decision *schedule.Decision) (bool, error) {
	for _, run := range decision.DeleteRuns {
		object, isObject := run.Object.(client.Object)
		if !isObject {
			continue
		}
		var err error
		if run.IsFinished { // only the observed version: a user may have run it again since
			err = kube.DeleteVersion(ctx, r.Client, object, metav1.DeletePropagationBackground)
		} else {
			err = client.IgnoreNotFound(r.Client.Delete(ctx, object,
				client.Preconditions{UID: &run.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground)))
		}
		if err != nil {
			return false, err
		}
	}
	if decision.CreateRun == nil {
		return false, nil
	}
	var result outcome
	var err error
	if s.Spec.Message != nil {
		result, err = r.sendMessage(ctx, s, decision)
	} else {
		result.refusal, err = r.createRun(ctx, s, decision.CreateRun)
	}
	if err != nil || result == (outcome{}) {
		return false, err
	}
	observation.Schedule, observation.Now = s.DeepCopy(), r.Clock.Now()
	observation.Refusal, observation.Sent, observation.NotSent = result.refusal, result.sent, result.notSent
	return true, nil
}

// createRun creates a run. A run that exists and belongs to the Schedule was created by an earlier reconciliation. A refusal is
// not an error: package schedule decides about it.
func (r *Reconciler) createRun(ctx context.Context, s *v1alpha1.Schedule, pending *v1alpha1.ScheduledRun) (*decision.Refusal, error) {
	refused := decision.Refusal{Kind: schedule.KindOf(&s.Spec), Name: pending.Name}
	object, err := schedule.NewRun(s, pending)
	if err != nil {
		refused.Class, refused.Message = decision.Invalid, err.Error()
		return &refused, nil //nolint:nilerr // the core decides about it
	}
	err = r.Client.Create(ctx, object)
	switch {
	case apierrors.IsAlreadyExists(err):
		existing, err := r.readRun(ctx, s, pending.Name)
		if err != nil || existing != nil {
			return nil, err
		}
		return decision.NameTaken(refused, "Schedule"), nil
	case err != nil:
		return kube.AsRefusal(err, refused)
	}
	r.observeDelay(pending)
	return nil, nil
}

// observeDelay measures how late a run starts. The time of a requested run says nothing about that.
func (r *Reconciler) observeDelay(started *v1alpha1.ScheduledRun) {
	if started.RerunID == "" {
		startDelay.Observe(max(r.Clock.Now().Sub(started.ScheduledTime.Time), 0).Seconds())
	}
}

// sendTimeout limits how long a broker takes to confirm a message.
const sendTimeout = 10 * time.Second

// outcome is the result of starting a run. At most one field is set.
type outcome struct {
	// refusal is set if the run, or the message, is never accepted without a change.
	refusal *decision.Refusal
	sent    bool
	// notSent is why the message is certainly not in its queue.
	notSent *decision.Problem
}

// answer is a broker's answer to an attempt to send a message.
type answer struct {
	// isFirst is true if the message was certainly not sent before.
	isFirst bool
	failure error
}

// notSent returns the outcome of an attempt that did not store the message. An earlier attempt may have stored it.
func notSent(problem *decision.Problem, isFirst bool) (outcome, error) {
	if !isFirst {
		return outcome{}, errors.New("an earlier attempt to send the message was not confirmed, and another one failed: " + problem.Message)
	}
	return outcome{notSent: problem}, nil
}

// queueOf returns the Queue of a Schedule's messages, and why messages cannot be sent to it now.
func (r *Reconciler) queueOf(ctx context.Context, s *v1alpha1.Schedule) (*v1alpha1.Queue, *decision.Problem, error) {
	name := s.Spec.Message.QueueRef.Name
	q, err := kube.GetIfExists(ctx, r.Client, s.Namespace, name, &v1alpha1.Queue{})
	switch {
	case err != nil:
		return nil, nil, err
	case q == nil:
		return nil, &decision.Problem{Reason: v1alpha1.ReasonQueueNotFound, Message: fmt.Sprintf("Queue %s does not exist", name)}, nil
	case !q.DeletionTimestamp.IsZero():
		return nil, &decision.Problem{Reason: v1alpha1.ReasonQueueNotReady, Message: fmt.Sprintf("Queue %s is being deleted", name)}, nil
	}
	ready := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != "True" || q.Status.Name == "" {
		message := "it was not reconciled yet"
		if ready != nil {
			message = decision.FormatReason(ready.Reason, ready.Message)
		}
		return nil, &decision.Problem{Reason: v1alpha1.ReasonQueueNotReady, Message: fmt.Sprintf("Queue %s is not ready: %s", name, message)}, nil
	}
	return q, nil, nil
}

// sendMessage sends the message of a pending time in the background, because the broker may not answer. Until it does, it returns
// kube.ErrPending.
func (r *Reconciler) sendMessage(ctx context.Context, s *v1alpha1.Schedule, d *schedule.Decision) (outcome, error) {
	pending := d.CreateRun
	q, problem, err := r.queueOf(ctx, s)
	switch {
	case err != nil:
		return outcome{}, err
	case problem != nil:
		return notSent(problem, d.IsFirstAttempt)
	}
	policies, err := kube.ReadPolicies(ctx, r.Client, q.Namespace)
	if err != nil {
		return outcome{}, err
	}
	selected := policies.Select(q.Labels)
	conn := r.options.Brokers.Conn(q.Namespace, policy.EffectiveQueue(q, &selected).Broker)
	engine, err := conn.Engine()
	if err != nil {
		problem = &decision.Problem{Reason: v1alpha1.ReasonConnectionFailed, Message: err.Error()}
		if known := (*brokeraccess.ConnectionError)(nil); errors.As(err, &known) {
			problem = new(known.Problem())
		}
		return notSent(problem, d.IsFirstAttempt)
	}
	producer, isProducer := engine.(broker.Producer)
	if !isProducer {
		return outcome{refusal: &decision.Refusal{Class: decision.Invalid, Kind: "message", Name: pending.Name, Message: "the engine of the Queue cannot send messages"}}, nil
	}
	message := schedule.NewMessage(s, q.Status.Name, pending.Name, pending.ScheduledTime.Time)
	subject := fmt.Sprintf("%s/%s/%d/%s", s.UID, pending.Name, s.Generation, pending.Since)
	isFirst := d.IsFirstAttempt
	answer, answered, err := r.sends.Observe(ctx, client.ObjectKeyFromObject(s), subject, conn.Key.String(), func(ctx context.Context) (answer, error) {
		ctx, cancel := context.WithTimeout(ctx, sendTimeout)
		defer cancel()
		_, failure := producer.Send(ctx, message)
		conn.CheckHealth(failure)
		return answer{isFirst, failure}, nil
	})
	switch {
	case err != nil:
		return outcome{}, err
	case !answered:
		return outcome{}, kube.ErrPending
	default:
		return r.sendOutcome(s, pending, answer)
	}
}

// sendOutcome classifies the answer of a broker. After a failure that may have stored the message, it returns an error: the
// message is sent again soon, or package schedule gives it up.
func (r *Reconciler) sendOutcome(s *v1alpha1.Schedule, pending *v1alpha1.ScheduledRun, answer answer) (outcome, error) {
	switch failure := answer.failure; {
	case failure == nil:
		r.observeDelay(pending)
		return outcome{sent: true}, nil
	case errors.Is(failure, broker.ErrUnavailable), errors.Is(failure, broker.ErrClosed):
		return outcome{}, fmt.Errorf("sending message %s to Queue %s: %w", pending.Name, s.Spec.Message.QueueRef.Name, failure)
	case errors.Is(failure, broker.ErrQueueFull), errors.Is(failure, broker.ErrUnauthorized), errors.Is(failure, broker.ErrDraining), errors.Is(failure, broker.ErrUnknownQueue):
		return notSent(&decision.Problem{Reason: v1alpha1.ReasonQueueNotReady, Message: failure.Error()}, answer.isFirst)
	default:
		return outcome{refusal: &decision.Refusal{Class: decision.Invalid, Kind: "message", Name: pending.Name, Message: failure.Error()}}, nil
	}
}
