package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of the fields of a QueueConfig.
const (
	MaxPriorities = 8
	MinLease      = 5 * time.Second
	MaxLease      = time.Hour
	MinJobTimeout = time.Second
	MaxJobTimeout = 24 * time.Hour
	MaxAttempts   = 1001
	// MinResultsRetention and MinResultsBytes bound a ResultsConfig.
	MinResultsRetention = time.Minute
	MinResultsBytes     = 1 << 20
)

const (
	name = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`
	// clusterIDLength distinguishes scoped names from names that engines make with underscores.
	clusterIDLength = 10
)

var (
	// namePattern is the syntax of names that users choose. It excludes dots and underscores, because engines make names of their objects with
	// them.
	namePattern      = regexp.MustCompile(`^` + name + `$`)
	queueNamePattern = regexp.MustCompile(fmt.Sprintf(`^%[1]s(_%[1]s_[0-9a-f]{%[2]d})?$`, name, clusterIDLength))
)

// ClusterID returns the part of queue names that identifies a cluster, given its UID.
func ClusterID(uid string) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:])[:clusterIDLength]
}

// ScopedQueueName returns the name of a queue that no user of another namespace or cluster can choose, because chosen names contain no
// underscore.
func ScopedQueueName(namespace, name, clusterID string) string {
	return namespace + "_" + name + "_" + clusterID
}

// Validate returns an error for each invalid field.
func (q *QueueConfig) Validate() error {
	c := &fieldErrors{}
	c.require(queueNamePattern.MatchString(q.Name), "name", "is %q, must be one name, or a namespace, a name and a cluster joined by underscores",
		strings.ToValidUTF8(q.Name, "?"))
	c.require(q.Owner.UID != "", "owner", "has no UID")
	q.validatePriorities(c)
	if r := q.RateLimit; r != nil {
		c.requireAtLeast("rateLimit.limit", int64(r.Limit), 1)
		c.requireAtLeast("rateLimit.burst", int64(r.Burst), 1)
		c.require(r.Per > 0, "rateLimit.per", "is %s, must be more than 0", r.Per)
		c.require(r.Limit < 1 || r.Interval() >= time.Microsecond || r.Per <= 0, "rateLimit",
			"allows more than one job per microsecond")
	}
	c.requireAtLeast("maxInFlight", int64(q.MaxInFlight), 0)
	c.requireAtLeast("maxBacklog", q.MaxBacklog, 0)
	c.require(q.Lease >= MinLease && q.Lease <= MaxLease, "lease", "is %s, must be %s to %s", q.Lease, MinLease, MaxLease)
	c.require(q.JobTimeout == 0 || isJobTimeout(q.JobTimeout), "jobTimeout", "is %s, must be %s to %s", q.JobTimeout, MinJobTimeout, MaxJobTimeout)
	q.Retry.validate(c)
	c.requireAtLeast("deadLetter.maxEntries", q.DeadLetter.MaxEntries, 0)
	c.require(q.DeadLetter.Retention >= 0, "deadLetter.retention", "is negative")
	c.require(q.MaxAge >= 0, "maxAge", "is negative")
	r := q.Results
	c.require(r.Retention == 0 || r.Retention >= MinResultsRetention && r.Retention >= q.Lease, "results.retention",
		"is %s, must be at least %s and the lease, %s", r.Retention, MinResultsRetention, q.Lease) // a report is kept until the next one
	c.require(!r.IsEnabled() || r.MaxBytes >= MinResultsBytes, "results.maxBytes", "is %d, must be at least %d", r.MaxBytes, MinResultsBytes)
	c.require(slices.Contains([]int{0, 1, 3, 5}, q.Storage.Replicas), "storage.replicas", "is %d, must be 1, 3 or 5", q.Storage.Replicas)
	c.require(slices.Contains([]StorageType{"", StorageFile, StorageMemory}, q.Storage.Type), "storage.type",
		"is %q, must be %s or %s", q.Storage.Type, StorageFile, StorageMemory)
	c.require(slices.Contains([]DriftPolicy{DriftCorrect, DriftWarn}, q.Drift), "drift", "is %q, must be %s or %s", q.Drift, DriftCorrect, DriftWarn)
	return errors.Join(*c...)
}

func (q *QueueConfig) validatePriorities(c *fieldErrors) {
	c.require(len(q.Priorities) > 0 && len(q.Priorities) <= MaxPriorities, "priorities", "has %d, must have 1 to %d",
		len(q.Priorities), MaxPriorities)
	seen := map[string]bool{}
	for i, p := range q.Priorities {
		field := fmt.Sprintf("priorities[%d]", i)
		c.require(namePattern.MatchString(p.Name), field+".name",
			"is %q, must be at most 63 of a-z, 0-9 and -, beginning and ending with none of -", strings.ToValidUTF8(p.Name, "?"))
		c.require(!seen[p.Name], field+".name", "%q is a duplicate", p.Name)
		c.require(p.Weight >= 1 && p.Weight <= 100, field+".weight", "is %d, must be 1 to 100", p.Weight)
		seen[p.Name] = true
	}
	c.require(q.MaxInFlight == 0 || q.MaxInFlight >= len(q.Priorities), "maxInFlight",
		"is %d, must be at least %d, the number of priorities", q.MaxInFlight, len(q.Priorities))
}

func (r *RetryPolicy) validate(c *fieldErrors) {
	c.require(r.MaxAttempts >= 1 && r.MaxAttempts <= MaxAttempts, "retry.maxAttempts", "is %d, must be 1 to %d", r.MaxAttempts, MaxAttempts)
	c.require(r.InitialDelay >= 0, "retry.initialDelay", "is negative")
	c.require(r.MaxDelay >= r.InitialDelay, "retry.maxDelay", "is %s, shorter than initialDelay, %s", r.MaxDelay, r.InitialDelay)
	c.require(r.MultiplierPercent >= 100 && r.MultiplierPercent <= 1000, "retry.multiplierPercent",
		"is %d, must be 100 to 1000", r.MultiplierPercent)
	c.require(r.JitterPercent >= 0 && r.JitterPercent <= 100, "retry.jitterPercent", "is %d, must be 0 to 100", r.JitterPercent)
}

type fieldErrors []error

func (c *fieldErrors) require(valid bool, field, format string, values ...any) {
	if !valid {
		*c = append(*c, fmt.Errorf("%s %s", field, fmt.Sprintf(format, values...)))
	}
}

func (c *fieldErrors) requireAtLeast(field string, value, least int64) {
	c.require(value >= least, field, "is %d, must be at least %d", value, least)
}
