package jetstream

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

type settingComparison struct {
	object      string
	differences []broker.SettingDifference
}

func (c *settingComparison) compareSetting(name string, want, found any) {
	w, f := fmt.Sprint(want), fmt.Sprint(found)
	if w != f {
		c.differences = append(c.differences, broker.SettingDifference{Object: c.object, Setting: name, Want: w, Found: f})
	}
}

// streamDrift compares the settings that the configuration determines in one of the streams.
func streamDrift(want, found *jetstream.StreamConfig) []broker.SettingDifference {
	c := &settingComparison{object: "stream " + want.Name}
	c.compareSetting("subjects", sortedSubjects(want.Subjects), sortedSubjects(found.Subjects))
	c.compareSetting("discard", want.Discard, found.Discard)
	c.compareSetting("max_msgs", want.MaxMsgs, found.MaxMsgs)
	c.compareSetting("max_msgs_per_subject", want.MaxMsgsPerSubject, found.MaxMsgsPerSubject)
	c.compareSetting("max_age", want.MaxAge, found.MaxAge)
	c.compareSetting("max_bytes", want.MaxBytes, found.MaxBytes)
	c.compareSetting("allow_msg_schedules", want.AllowMsgSchedules, found.AllowMsgSchedules)
	c.compareSetting("allow_direct", want.AllowDirect, found.AllowDirect)
	c.compareSetting("republish", formatRePublish(want.RePublish), formatRePublish(found.RePublish))
	c.compareSetting("sources", formatSources(want.Sources), formatSources(found.Sources))
	c.compareSetting("allow_rollup_hdrs", want.AllowRollup, found.AllowRollup)
	return c.differences
}

func formatSources(sources []*jetstream.StreamSource) string {
	var texts []string
	for _, s := range sources {
		words := []string{s.Name}
		for _, t := range s.SubjectTransforms {
			words = append(words, t.Source, "to", t.Destination)
		}
		if s.Consumer != nil {
			words = append(words, "through", s.Consumer.Name, "on", s.Consumer.DeliverSubject)
		}
		texts = append(texts, strings.Join(words, " "))
	}
	return cmp.Or(strings.Join(texts, "; "), "none")
}

// transferDrift compares the settings of the consumer that moves messages that are due.
func transferDrift(want, found *jetstream.ConsumerConfig, queue string) []broker.SettingDifference {
	c := &settingComparison{object: "consumer " + want.Name + " of " + delayedStreamName(queue)}
	c.compareSetting("filter_subject", want.FilterSubject, found.FilterSubject)
	c.compareSetting("deliver_subject", want.DeliverSubject, found.DeliverSubject)
	c.compareSetting("max_ack_pending", want.MaxAckPending, found.MaxAckPending)
	return c.differences
}

func sortedSubjects(subjects []string) string {
	return strings.Join(slices.Sorted(slices.Values(subjects)), " ")
}

func formatRePublish(r *jetstream.RePublish) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%s to %s, headers only: %t", r.Source, r.Destination, r.HeadersOnly)
}

func consumerDrift(queue string, want, found *jetstream.ConsumerConfig) []broker.SettingDifference {
	c := &settingComparison{object: "consumer " + want.Name + " of " + streamName(queue)}
	c.compareSetting("filter_subject", want.FilterSubject, found.FilterSubject)
	c.compareSetting("ack_wait", want.AckWait, found.AckWait)
	c.compareSetting("backoff", want.BackOff, found.BackOff)
	c.compareSetting("max_deliver", want.MaxDeliver, found.MaxDeliver)
	c.compareSetting("max_ack_pending", want.MaxAckPending, found.MaxAckPending)
	c.compareSetting("weight", want.Metadata[metaWeight], found.Metadata[metaWeight])
	return c.differences
}

// immutableSettingError is about a setting that the server does not allow to change.
func immutableSettingError(object, setting string, want, found any) error {
	return broker.Errorf(broker.ClassInvalid, "%s exists, and its %s is %v, must be %v: delete it, or choose another name for the queue",
		object, setting, found, want)
}
