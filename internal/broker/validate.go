package broker

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The bounds of a queue's fields.
const (
	MaxPriorities = 8
	MinLease      = 5 * time.Second
	MaxLease      = time.Hour
)

// NamePattern is what names of queues and priorities look like. There is neither a dot
// nor an underscore in it, which lets engines build names of their own around it.
var NamePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Validate tells each field that cannot be, and why.
func (q *QueueConfig) Validate() error {
	c := &checks{}
	c.name("name", q.Name)
	c.that(q.Owner.UID != "", "owner", "has no UID")
	q.validatePriorities(c)
	if r := q.RateLimit; r != nil {
		c.atLeast("rateLimit.limit", int64(r.Limit), 1)
		c.atLeast("rateLimit.burst", int64(r.Burst), 1)
		c.that(r.Per > 0, "rateLimit.per", "is %s, must be more than 0", r.Per)
		c.that(r.Limit < 1 || r.Interval() >= time.Microsecond || r.Per <= 0, "rateLimit",
			"is more than one job in a microsecond")
	}
	c.atLeast("maxInFlight", int64(q.MaxInFlight), 0)
	c.atLeast("maxBacklog", q.MaxBacklog, 0)
	c.between("lease", q.Lease, MinLease, MaxLease)
	q.Retry.check(c, "retry.")
	c.atLeast("deadLetter.maxEntries", q.DeadLetter.MaxEntries, 0)
	c.that(q.DeadLetter.Retention >= 0, "deadLetter.retention", "is negative")
	c.that(q.MaxAge >= 0, "retention.maxAge", "is negative")
	c.that(slices.Contains([]DriftPolicy{DriftCorrect, DriftWarn}, q.Drift), "drift", "is %q, must be %s or %s", q.Drift, DriftCorrect, DriftWarn)
	return c.err()
}

func (q *QueueConfig) validatePriorities(c *checks) {
	c.that(len(q.Priorities) > 0 && len(q.Priorities) <= MaxPriorities, "priorities", "has %d, must have 1 to %d",
		len(q.Priorities), MaxPriorities)
	seen := map[string]bool{}
	for i, p := range q.Priorities {
		field := fmt.Sprintf("priorities[%d]", i)
		c.name(field+".name", p.Name)
		c.that(!seen[p.Name], field+".name", "%q is there twice", p.Name)
		c.that(p.Weight >= 1 && p.Weight <= 100, field+".weight", "is %d, must be 1 to 100", p.Weight)
		seen[p.Name] = true
	}
	c.that(q.MaxInFlight == 0 || q.MaxInFlight >= len(q.Priorities), "maxInFlight",
		"is %d, and each of the %d priorities needs a part of it", q.MaxInFlight, len(q.Priorities))
}

// Validate tells each field that cannot be, and why.
func (r RetryPolicy) Validate() error {
	c := &checks{}
	r.check(c, "")
	return c.err()
}

func (r RetryPolicy) check(c *checks, prefix string) {
	c.that(r.MaxAttempts >= 1 && r.MaxAttempts <= 1000, prefix+"maxAttempts", "is %d, must be 1 to 1000", r.MaxAttempts)
	c.that(r.InitialDelay >= 0, prefix+"initialDelay", "is negative")
	c.that(r.MaxDelay >= r.InitialDelay, prefix+"maxDelay", "is %s, shorter than initialDelay, %s", r.MaxDelay, r.InitialDelay)
	c.that(r.MultiplierPercent >= 100 && r.MultiplierPercent <= 1000, prefix+"multiplierPercent",
		"is %d, must be 100 to 1000", r.MultiplierPercent)
	c.that(r.JitterPercent >= 0 && r.JitterPercent <= 100, prefix+"jitterPercent", "is %d, must be 0 to 100", r.JitterPercent)
}

// checks gathers what is wrong with fields.
type checks struct{ errs []error }

func (c *checks) add(field, format string, values ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s %s", field, fmt.Sprintf(format, values...)))
}

func (c *checks) that(right bool, field, format string, values ...any) {
	if !right {
		c.add(field, format, values...)
	}
}

func (c *checks) name(field, value string) {
	c.that(NamePattern.MatchString(value), field,
		"is %q, must be at most 63 of a-z, 0-9 and -, beginning and ending with none of -", strings.ToValidUTF8(value, "?"))
}

func (c *checks) between(field string, value, least, most time.Duration) {
	c.that(value >= least && value <= most, field, "is %s, must be %s to %s", value, least, most)
}

func (c *checks) atLeast(field string, value, least int64) {
	c.that(value >= least, field, "is %d, must be at least %d", value, least)
}

func (c *checks) err() error { return errors.Join(c.errs...) }
