package worker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/connection"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/login"
	"github.com/yardmaster/yardmaster/worker/internal/breaker"
	"github.com/yardmaster/yardmaster/worker/internal/scheduler"
)

// Config is the configuration of a worker. It may change while the worker runs, except for
// Broker, AdminAddress and MetricsAddress, which require a restart.
type Config struct {
	// Broker that has the queues.
	Broker BrokerConfig `json:"broker"`
	// Queues to take jobs from, 1 to 16.
	Queues []QueueConfig `json:"queues"`
	// Concurrency is the number of jobs that run at a time, 1 to 10,000. The default is 10.
	Concurrency int `json:"concurrency,omitempty"`
	// MaxInFlight is the number of running and prefetched messages that the worker has at a time, at least Concurrency. By default the
	// worker prefetches the messages that it will start within a tenth of a second, at most 2,048.
	MaxInFlight int `json:"maxInFlight,omitempty"`
	// DrainTimeout is the time that running jobs have to finish before the worker exits. The default is 10 minutes.
	DrainTimeout Duration `json:"drainTimeout,omitempty"`
	// AdminAddress is the address of the admin API. The default is ":8081"; "0" disables the API.
	AdminAddress string `json:"adminAddress,omitempty"`
	// MetricsAddress is the address of /metrics. "0" disables the metrics. By default they are a part of the admin API.
	MetricsAddress string `json:"metricsAddress,omitempty"`
}

// BrokerConfig defines how to connect to the broker.
type BrokerConfig = connection.Config

// SentinelConfig is a part of a BrokerConfig.
type SentinelConfig = connection.SentinelConfig

// TLSConfig is a part of a BrokerConfig.
type TLSConfig = connection.TLSConfig

// QueueConfig is the configuration of one queue. In a WorkerPool it follows the Queue.
type QueueConfig struct {
	// Name of the queue on the broker.
	Name string `json:"name"`
	// Weight is the queue's share of the worker relative to the worker's other queues, 1 to 100. The default is 1.
	Weight int `json:"weight,omitempty"`
	// Priorities in descending order of urgency. The default is one priority named "default".
	Priorities []PriorityConfig `json:"priorities,omitempty"`
	// StrictPriority makes jobs wait while jobs of a more urgent priority are waiting. By default, priorities share the worker by weight.
	StrictPriority bool `json:"strictPriority,omitempty"`
	// Lease is the time after which the broker redelivers a message whose lease was not extended. The default is 30 seconds.
	Lease Duration `json:"lease,omitempty"`
	// JobTimeout is the time that a handler has for a job, 1 second to 24 hours. Then its context ends, and soon after that the lease is no
	// longer extended. The header Yardmaster-Timeout of a message replaces it. By default there is no limit.
	JobTimeout Duration `json:"jobTimeout,omitempty"`
	// Retry defines when failed jobs are retried.
	Retry *RetryPolicy `json:"retry,omitempty"`
	// DeadLetter defines what happens to jobs that are not retried.
	DeadLetter *DeadLetterPolicy `json:"deadLetter,omitempty"`
	// Results makes the worker store the state of each job, and cancel jobs on request. By default it does neither.
	Results *ResultsConfig `json:"results,omitempty"`
	// CircuitBreaker stops the worker from taking jobs while most of them fail. By default it never does.
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`
}

// ResultsConfig configures a queue that keeps the states of its jobs.
type ResultsConfig struct {
	// Retention is how long states after their last change, and requests to cancel jobs, are kept: at least a minute, and the lease. It is
	// required.
	Retention Duration `json:"retention"`
}

// PriorityConfig is one priority of a queue.
type PriorityConfig struct {
	Name string `json:"name"`
	// Weight is the priority's share of the queue relative to its other priorities. The default is 1.
	Weight int `json:"weight,omitempty"`
}

// RetryPolicy defines how often and after which delays failed jobs are retried.
type RetryPolicy struct {
	// MaxAttempts is the number of attempts, including the first. The default is 5.
	MaxAttempts *int `json:"maxAttempts,omitempty"`
	// InitialDelay is the delay before the second attempt. The default is 1 second.
	InitialDelay *Duration `json:"initialDelay,omitempty"`
	// MaxDelay is the upper bound of all delays. The default is 10 minutes.
	MaxDelay *Duration `json:"maxDelay,omitempty"`
	// MultiplierPercent is the ratio of each delay to the previous delay, in percent. The default is 200.
	MultiplierPercent *int `json:"multiplierPercent,omitempty"`
	// JitterPercent is the random part of each delay, in percent of the delay. The default is 20.
	JitterPercent *int `json:"jitterPercent,omitempty"`
}

// DeadLetterPolicy defines what happens to jobs that are not retried.
type DeadLetterPolicy struct {
	// Enabled keeps the jobs as dead letters. Otherwise they are dropped. The default is true.
	Enabled *bool `json:"enabled,omitempty"`
}

// CircuitBreaker defines when a worker stops taking jobs of a queue because most of them fail. Each worker has its own breaker for each
// queue.
type CircuitBreaker struct {
	// FailureThresholdPercent is the percentage of failed jobs within Window at which the breaker opens. The default is 50; 0 disables the
	// breaker.
	FailureThresholdPercent *int `json:"failureThresholdPercent,omitempty"`
	// Window is the period over which jobs are counted. The default is 1 minute, the minimum 1 second.
	Window *Duration `json:"window,omitempty"`
	// MinSamples is the number of jobs within Window below which the breaker stays closed. The default is 20.
	MinSamples *int `json:"minSamples,omitempty"`
	// Cooldown is the time that the breaker stays open. The default is 30 seconds.
	Cooldown *Duration `json:"cooldown,omitempty"`
}

const (
	defaultConcurrency  = 10
	defaultDrainTimeout = Duration(10 * time.Minute)
	defaultAdminAddress = ":8081"
	maxConcurrency      = 10_000
	maxQueueCount       = 16
	maxQueueWeight      = 100
	// unusedOwnerUID satisfies the validation of queues: workers do not need the owner.
	unusedOwnerUID = "-"
)

// ParseConfig reads a Config from YAML or JSON. Unknown fields are an error.
func ParseConfig(raw []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return Config{}, fmt.Errorf("parsing the worker configuration: %w", err)
	}
	return c, nil
}

type workerSettings struct {
	concurrency    int
	maxInFlight    int
	drainTimeout   time.Duration
	adminAddress   string
	metricsAddress string
	broker         BrokerConfig
	queues         []scheduler.QueueConfig
}

// validatedSettings applies the defaults. The error names every invalid field.
func (c *Config) validatedSettings() (*workerSettings, error) {
	concurrency := cmp.Or(c.Concurrency, defaultConcurrency)
	s := &workerSettings{
		concurrency:    concurrency,
		maxInFlight:    cmp.Or(c.MaxInFlight, concurrency+scheduler.MaxPrefetch),
		drainTimeout:   time.Duration(cmp.Or(c.DrainTimeout, defaultDrainTimeout)),
		adminAddress:   cmp.Or(c.AdminAddress, defaultAdminAddress),
		metricsAddress: c.MetricsAddress,
		broker:         c.Broker,
	}
	var errs []error
	addError := func(format string, values ...any) { errs = append(errs, fmt.Errorf(format, values...)) }
	if s.concurrency < 1 || s.concurrency > maxConcurrency {
		addError("concurrency is %d, must be 1 to %d", s.concurrency, maxConcurrency)
	}
	if s.maxInFlight < s.concurrency {
		addError("maxInFlight is %d, must not be less than concurrency, %d", s.maxInFlight, s.concurrency)
	}
	if s.drainTimeout < 0 {
		addError("drainTimeout is %s, must not be negative", s.drainTimeout)
	}
	errs = append(errs, login.Validate(&c.Broker))
	if len(c.Queues) < 1 || len(c.Queues) > maxQueueCount {
		addError("queues has %d items, must have 1 to %d", len(c.Queues), maxQueueCount)
	}
	names := map[string]bool{}
	for i := range c.Queues {
		q, err := c.Queues[i].withDefaults()
		if err != nil {
			addError("queues[%d]: %w", i, err)
		}
		if names[q.Name] {
			addError("queues[%d]: name %q is used twice", i, q.Name)
		}
		names[q.Name] = true
		s.queues = append(s.queues, q)
	}
	return s, errors.Join(errs...)
}

func (q *QueueConfig) withDefaults() (scheduler.QueueConfig, error) {
	c := scheduler.QueueConfig{QueueConfig: broker.DefaultQueueConfig(q.Name), Weight: cmp.Or(q.Weight, 1), Breaker: q.CircuitBreaker.withDefaults()}
	c.Owner.UID = unusedOwnerUID
	c.StrictPriority = q.StrictPriority
	c.Lease = time.Duration(cmp.Or(q.Lease, Duration(c.Lease)))
	c.JobTimeout = time.Duration(q.JobTimeout)
	if len(q.Priorities) > 0 {
		c.Priorities = nil
	}
	for _, p := range q.Priorities {
		c.Priorities = append(c.Priorities, broker.Priority{Name: p.Name, Weight: cmp.Or(p.Weight, 1)})
	}
	if r := q.Retry; r != nil {
		setIfPresent(&c.Retry.MaxAttempts, r.MaxAttempts)
		setIfPresent(&c.Retry.InitialDelay, (*time.Duration)(r.InitialDelay))
		setIfPresent(&c.Retry.MaxDelay, (*time.Duration)(r.MaxDelay))
		setIfPresent(&c.Retry.MultiplierPercent, r.MultiplierPercent)
		setIfPresent(&c.Retry.JitterPercent, r.JitterPercent)
	}
	if q.Results != nil {
		// A retention of 0 is not valid, and must not disable the store silently.
		c.Results = broker.ResultsConfig{Retention: max(time.Duration(q.Results.Retention), 1), MaxBytes: broker.DefaultResultsBytes}
	}
	if q.DeadLetter != nil {
		setIfPresent(&c.DeadLetter.Enabled, q.DeadLetter.Enabled)
	}
	err := c.Validate()
	if c.Weight < 1 || c.Weight > maxQueueWeight {
		err = errors.Join(err, fmt.Errorf("weight is %d, must be 1 to %d", c.Weight, maxQueueWeight))
	}
	if breakerError := c.Breaker.Validate(); breakerError != nil {
		err = errors.Join(err, fmt.Errorf("circuitBreaker.%w", breakerError))
	}
	return c, err
}

// withDefaults returns the settings of the breaker. Without a configuration it never opens.
func (c *CircuitBreaker) withDefaults() breaker.Settings {
	if c == nil {
		return breaker.Settings{}
	}
	s := breaker.Settings{
		FailureThresholdPercent: 50, Window: time.Minute, MinSamples: 20, Cooldown: 30 * time.Second,
	}
	setIfPresent(&s.FailureThresholdPercent, c.FailureThresholdPercent)
	setIfPresent(&s.Window, (*time.Duration)(c.Window))
	setIfPresent(&s.MinSamples, c.MinSamples)
	setIfPresent(&s.Cooldown, (*time.Duration)(c.Cooldown))
	return s
}

func setIfPresent[T any](target, value *T) {
	if value != nil {
		*target = *value
	}
}

func boolToInt(condition bool) int {
	if condition {
		return 1
	}
	return 0
}

// Duration is a time.Duration that is written as text in YAML and JSON, such as 30s or 1m30s.
type Duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("%s is not a duration such as 30s", raw)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 30s", text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// String implements fmt.Stringer.
func (d Duration) String() string { return time.Duration(d).String() }
