package jetstream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// comparison gathers what is not as it is to be.
type comparison struct {
	object      string
	differences []broker.SettingDifference
}

func (c *comparison) setting(name string, want, found any) {
	w, f := fmt.Sprint(want), fmt.Sprint(found)
	if w != f {
		c.differences = append(c.differences, broker.SettingDifference{Object: c.object, Setting: name, Want: w, Found: f})
	}
}

// streamDrift compares the settings that are ours to say.
func streamDrift(want, found *jetstream.StreamConfig) []broker.SettingDifference {
	c := &comparison{object: "stream " + want.Name}
	c.setting("subjects", sorted(want.Subjects), sorted(found.Subjects))
	c.setting("discard", want.Discard, found.Discard)
	c.setting("max_msgs", want.MaxMsgs, found.MaxMsgs)
	c.setting("max_age", want.MaxAge, found.MaxAge)
	c.setting("allow_msg_schedules", want.AllowMsgSchedules, found.AllowMsgSchedules)
	c.setting("allow_direct", want.AllowDirect, found.AllowDirect)
	c.setting("republish", republished(want.RePublish), republished(found.RePublish))
	c.setting("owner", ownerOf(want.Metadata), ownerOf(found.Metadata))
	return c.differences
}

func sorted(subjects []string) string {
	return strings.Join(slices.Sorted(slices.Values(subjects)), " ")
}

func republished(r *jetstream.RePublish) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%s to %s, headers only: %t", r.Source, r.Destination, r.HeadersOnly)
}

func consumerDrift(queue string, want, found *jetstream.ConsumerConfig) []broker.SettingDifference {
	c := &comparison{object: "consumer " + want.Name + " of " + streamOf(queue)}
	c.setting("filter_subject", want.FilterSubject, found.FilterSubject)
	c.setting("ack_wait", want.AckWait, found.AckWait)
	c.setting("backoff", want.BackOff, found.BackOff)
	c.setting("max_deliver", want.MaxDeliver, found.MaxDeliver)
	c.setting("max_ack_pending", want.MaxAckPending, found.MaxAckPending)
	c.setting("weight", want.Metadata[metaWeight], found.Metadata[metaWeight])
	return c.differences
}

func pauseDrift(queue, consumer string, want, found bool) []broker.SettingDifference {
	c := &comparison{object: "consumer " + consumer + " of " + streamOf(queue)}
	c.setting("paused", want, found)
	return c.differences
}

// limitDrift compares what the bucket says. Text that is no limit differs from every one.
func limitDrift(queue string, want limit, raw []byte) []broker.SettingDifference {
	c := &comparison{object: "key " + limitKey + " of bucket " + bucketOf(queue)}
	var found limit
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &found); err != nil {
			c.setting("limit", want, "not a limit")
			return c.differences
		}
	}
	c.setting("limit", want, found)
	return c.differences
}

// unchangeable is a setting that the server takes no change of.
func unchangeable(object, setting string, want, found any) error {
	return broker.Errorf(broker.ClassInvalid, "%s is there already, and its %s is %v, must be %v: delete it, or name the queue otherwise",
		object, setting, found, want)
}
