package queue

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// conclude computes the status, its events and the history of a reconciliation that has no further action. blocked is the
// problem that blocks the deletion of the Queue; nil if it is not blocked.
func conclude(o *Observation, blocked *decision.Problem) Decision {
	before := &o.Queue.Status
	history := o.History
	if o.Stats != nil {
		history.Stats = history.Stats.add(o.Stats)
	} else {
		history.Stats = StatsHistory{}
	}
	status := before.DeepCopy()
	if o.Connection.Connecting {
		// Only a Queue without conditions reports it: every restart of the operator would otherwise change the status of each
		// Queue twice.
		if len(status.Conditions) == 0 {
			status.ObservedGeneration = o.Queue.Generation
			setSummary(status, o, decision.Summary{
				Ready: metav1.ConditionUnknown, Progress: decision.InProgress, Reason: v1alpha1.ReasonPending, Message: "Connecting to the broker",
			})
		}
		return Decision{Status: *status, History: history}
	}
	result := latestComparison(o)
	status.ObservedGeneration = o.Queue.Generation
	status.Name, status.Engine = BrokerQueueName(o.Queue, o.ClusterID), o.Connection.Engine
	status.Effective = o.Effective.DeepCopy()
	if result != nil {
		status.Priorities = nil
		for _, p := range DesiredQueue(o.Queue, &o.Effective, o.ClusterID).Priorities {
			status.Priorities = append(status.Priorities, p.Name)
		}
		status.Priorities = append(status.Priorities, result.RetiringPriorities...)
	}
	setStats(status, history.Stats, history.Stranded.Number)
	setConditions(status, &conditionInput{Observation: o, result: result, blocked: blocked, history: history.Stats})
	// A newer time of unchanged stats is not stored: the status of an idle queue would change with every read.
	measured := status.MeasuredTime
	status.MeasuredTime = before.MeasuredTime
	unchanged := equality.Semantic.DeepEqual(before, status)
	if !unchanged {
		status.MeasuredTime = measured
	}
	actionEvents := comparisonEvents(result, before, status)
	return Decision{
		Status: *status, History: history, Events: append(actionEvents, transitionEvents(before, status)...),
		StatusUnchanged: unchanged, StatsOnly: !unchanged && len(actionEvents) == 0 && differsInStatsOnly(before, status),
	}
}

// latestComparison returns the result of comparing the queue with its spec; nil if unknown. The result of an earlier
// reconciliation is still valid, but its changes are complete.
func latestComparison(o *Observation) *broker.EnsureResult {
	if o.EnsureResult != nil || o.isDeleted() || o.hasFailed() {
		return o.EnsureResult
	}
	result := o.History.Comparison.Result
	if result.Corrected {
		result.Drift = nil
	}
	result.Created, result.Updated, result.Corrected, result.ErasedDelayed = false, false, false, false
	return &result
}

// setStats sets the known stats and clears the others.
func setStats(status *v1alpha1.QueueStatus, history StatsHistory, stranded *int64) {
	copyStats(status, &v1alpha1.QueueStatus{})
	stats := history.Last
	if stats == nil {
		return
	}
	status.Backlog, status.InFlight, status.Delayed, status.Dead = &stats.Ready, &stats.InFlight, &stats.Delayed, &stats.DeadLetters
	if stranded != nil {
		status.Stranded, status.Delayed = stranded, new(max(0, stats.Delayed-*stranded))
	}
	if !stats.OldestReadyTime.IsZero() {
		status.OldestTime = new(metav1.NewTime(stats.OldestReadyTime).Rfc3339Copy())
	}
	status.WaitP95 = history.Latency.waitP95()
	if history.Rates.Seconds > 0 {
		status.ArrivalRate, status.ServiceRate = rateQuantity(history.Rates.arrivalRate()), rateQuantity(history.Rates.serviceRate())
	}
	status.MeasuredTime = new(metav1.NewTime(stats.MeasuredTime).Rfc3339Copy())
}

func copyStats(to, from *v1alpha1.QueueStatus) {
	to.MessageCounts, to.Delayed, to.Dead, to.Stranded = from.MessageCounts, from.Delayed, from.Dead, from.Stranded
	to.OldestTime, to.WaitP95, to.MeasuredTime = from.OldestTime, from.WaitP95, from.MeasuredTime
	to.ArrivalRate, to.ServiceRate = from.ArrivalRate, from.ServiceRate
}

// differsInStatsOnly reports whether only numbers changed. Stats that become known or unknown are more than a changed number.
func differsInStatsOnly(before, after *v1alpha1.QueueStatus) bool {
	if (before.MeasuredTime == nil) != (after.MeasuredTime == nil) {
		return false
	}
	a, b := *before, *after
	copyStats(&a, &v1alpha1.QueueStatus{})
	copyStats(&b, &v1alpha1.QueueStatus{})
	a.Conditions, b.Conditions = withoutNumbers(a.Conditions), withoutNumbers(b.Conditions)
	return equality.Semantic.DeepEqual(a, b)
}

// withoutNumbers returns conditions without the messages that contain stats.
func withoutNumbers(conditions []metav1.Condition) []metav1.Condition {
	var changed []metav1.Condition
	for _, c := range conditions {
		switch c.Reason {
		case v1alpha1.ReasonDeadLetters, v1alpha1.ReasonRateBelowArrivals, v1alpha1.ReasonMessagesStranded:
			c.Message = ""
		}
		changed = append(changed, c)
	}
	return changed
}
