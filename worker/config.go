package worker

import (
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/worker/internal/breaker"
)

// Config is what a worker works on and how. It may change while the worker runs, but for
// Broker and AdminAddress.
type Config struct {
	// Broker that has the queues.
	Broker Broker `json:"broker"`
	// Queues to work on, at least one.
	Queues []Queue `json:"queues"`
	// Concurrency is how many jobs run at a time.
	Concurrency int `json:"concurrency,omitempty"`
	// MaxInFlight messages are with the worker at a time: those whose jobs run, and those
	// fetched in advance. 0: besides Concurrency, what it will begin within a tenth of a
	// second.
	MaxInFlight int `json:"maxInFlight,omitempty"`
	// DrainTimeout is how long jobs that run may take once the worker is to end.
	DrainTimeout Duration `json:"drainTimeout,omitempty"`
	// AdminAddress is where /livez, /readyz, /drain, /resume, /prestop, /stats and /metrics
	// are. "0": nowhere.
	AdminAddress string `json:"adminAddress,omitempty"`
}

// Broker says how the broker is reached. What is secret is in files.
type Broker struct {
	// URL of the server, or URLFile that holds it: of NATS, or of a Redis or Valkey with
	// asynq's queues (redis://, rediss://).
	URL     string `json:"url,omitempty"`
	URLFile string `json:"urlFile,omitempty"`
	// UsernameFile and PasswordFile, or TokenFile, hold who logs in, rather than whom the URL
	// names. A line's end at the end is not part of it.
	UsernameFile string `json:"usernameFile,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
	TokenFile    string `json:"tokenFile,omitempty"`
	// CredentialsFile is a NATS credentials file.
	CredentialsFile string `json:"credentialsFile,omitempty"`
	TLS             TLS    `json:"tls,omitzero"`
}

// TLS says how the broker's certificate is checked, and which one is shown to it.
type TLS struct {
	CAFile          string `json:"caFile,omitempty"`
	CertificateFile string `json:"certificateFile,omitempty"`
	KeyFile         string `json:"keyFile,omitempty"`
	ServerName      string `json:"serverName,omitempty"`
}

// Queue is one queue to work on, as its own fields are.
type Queue struct {
	Name string `json:"name"`
	// Weight is this queue's share of the worker beside its other queues.
	Weight int `json:"weight,omitempty"`
	// Priorities from the most urgent to the least.
	Priorities []Priority `json:"priorities,omitempty"`
	// StrictPriority: nothing of a priority is begun while there is something of a more
	// urgent one.
	StrictPriority bool            `json:"strictPriority,omitempty"`
	Lease          Duration        `json:"lease,omitempty"`
	Retry          *RetryPolicy    `json:"retry,omitempty"`
	DeadLetter     *DeadLetters    `json:"deadLetter,omitempty"`
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`
}

// Priority is one class of urgency.
type Priority struct {
	Name   string `json:"name"`
	Weight int    `json:"weight,omitempty"`
}

// RetryPolicy says how often a job is tried, and how long to wait in between.
type RetryPolicy struct {
	MaxAttempts       *int      `json:"maxAttempts,omitempty"`
	InitialDelay      *Duration `json:"initialDelay,omitempty"`
	MaxDelay          *Duration `json:"maxDelay,omitempty"`
	MultiplierPercent *int      `json:"multiplierPercent,omitempty"`
	JitterPercent     *int      `json:"jitterPercent,omitempty"`
}

// DeadLetters says whether jobs that are not tried again are kept.
type DeadLetters struct {
	Enabled *bool `json:"enabled,omitempty"`
}

// CircuitBreaker says when this worker stops taking jobs of a queue, because most fail.
type CircuitBreaker struct {
	FailureThresholdPercent *int      `json:"failureThresholdPercent,omitempty"`
	Window                  *Duration `json:"window,omitempty"`
	MinSamples              *int      `json:"minSamples,omitempty"`
	Cooldown                *Duration `json:"cooldown,omitempty"`
	HalfOpenProbes          *int      `json:"halfOpenProbes,omitempty"`
}

// The defaults of a Config.
const (
	defaultConcurrency  = 10
	defaultDrainTimeout = 10 * time.Minute
	defaultAdminAddress = ":8081"
	maxConcurrency      = 10_000
	maxQueues           = 16
)

// ParseConfig reads YAML or JSON. A field it does not know is an error.
func ParseConfig(raw []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	return c, nil
}

// settings are a Config with all its defaults.
type settings struct {
	concurrency  int
	maxInFlight  int
	drainTimeout time.Duration
	adminAddress string
	broker       Broker
	queues       []queueSettings
}

type queueSettings struct {
	broker.QueueConfig
	weight  int
	breaker breaker.Settings
}

// settings fills in the defaults, and tells each field that cannot be, and why.
func (c *Config) settings() (*settings, error) {
	s := &settings{
		concurrency:  or(c.Concurrency, defaultConcurrency),
		maxInFlight:  or(c.MaxInFlight, or(c.Concurrency, defaultConcurrency)+mostAhead),
		drainTimeout: time.Duration(or(c.DrainTimeout, Duration(defaultDrainTimeout))),
		adminAddress: or(c.AdminAddress, defaultAdminAddress),
		broker:       c.Broker,
	}
	var errs []error
	fail := func(format string, values ...any) { errs = append(errs, fmt.Errorf(format, values...)) }
	if s.concurrency < 1 || s.concurrency > maxConcurrency {
		fail("concurrency is %d, must be 1 to %d", s.concurrency, maxConcurrency)
	}
	if s.maxInFlight < s.concurrency {
		fail("maxInFlight is %d, must not be less than concurrency, %d", s.maxInFlight, s.concurrency)
	}
	if s.drainTimeout < 0 {
		fail("drainTimeout is negative")
	}
	errs = append(errs, c.Broker.validate())
	if len(c.Queues) < 1 || len(c.Queues) > maxQueues {
		fail("queues has %d, must have 1 to %d", len(c.Queues), maxQueues)
	}
	seen := map[string]bool{}
	for i := range c.Queues {
		q, err := c.Queues[i].settings()
		if err != nil {
			fail("queues[%d]: %w", i, err)
		}
		if seen[q.Name] {
			fail("queues[%d]: name %q is there twice", i, q.Name)
		}
		seen[q.Name] = true
		s.queues = append(s.queues, q)
	}
	return s, errors.Join(errs...)
}

// validate tells what cannot be said together.
func (b *Broker) validate() error {
	var errs []error
	if (b.URL == "") == (b.URLFile == "") {
		errs = append(errs, errors.New("broker must have one of url and urlFile"))
	}
	if one(b.UsernameFile != "")+one(b.TokenFile != "")+one(b.CredentialsFile != "") > 1 {
		errs = append(errs, errors.New("broker must have no more than one of usernameFile, tokenFile and credentialsFile"))
	}
	if b.PasswordFile != "" && b.UsernameFile == "" {
		errs = append(errs, errors.New("broker has passwordFile, and must then have usernameFile"))
	}
	return errors.Join(errs...)
}

func (q *Queue) settings() (queueSettings, error) {
	s := queueSettings{QueueConfig: broker.DefaultQueueConfig(q.Name), weight: or(q.Weight, 1), breaker: q.CircuitBreaker.settings()}
	// Whose it is does not matter to a worker.
	s.Owner.UID = "-"
	s.StrictPriority = q.StrictPriority
	s.Lease = time.Duration(or(q.Lease, Duration(s.Lease)))
	if len(q.Priorities) > 0 {
		s.Priorities = nil
	}
	for _, p := range q.Priorities {
		s.Priorities = append(s.Priorities, broker.Priority{Name: p.Name, Weight: or(p.Weight, 1)})
	}
	if r := q.Retry; r != nil {
		set(&s.Retry.MaxAttempts, r.MaxAttempts)
		setDuration(&s.Retry.InitialDelay, r.InitialDelay)
		setDuration(&s.Retry.MaxDelay, r.MaxDelay)
		set(&s.Retry.MultiplierPercent, r.MultiplierPercent)
		set(&s.Retry.JitterPercent, r.JitterPercent)
	}
	if q.DeadLetter != nil {
		set(&s.DeadLetter.Enabled, q.DeadLetter.Enabled)
	}
	err := s.Validate()
	if s.weight < 1 || s.weight > 100 {
		err = errors.Join(err, fmt.Errorf("weight is %d, must be 1 to 100", s.weight))
	}
	if broken := s.breaker.Validate(); broken != nil {
		err = errors.Join(err, fmt.Errorf("circuitBreaker.%w", broken))
	}
	return s, err
}

// settings of a breaker that is not there never open it.
func (c *CircuitBreaker) settings() breaker.Settings {
	if c == nil {
		return breaker.Settings{}
	}
	s := breaker.Settings{
		FailureThresholdPercent: 50, Window: time.Minute, MinSamples: 20, Cooldown: 30 * time.Second, HalfOpenProbes: 1,
	}
	set(&s.FailureThresholdPercent, c.FailureThresholdPercent)
	setDuration(&s.Window, c.Window)
	set(&s.MinSamples, c.MinSamples)
	setDuration(&s.Cooldown, c.Cooldown)
	set(&s.HalfOpenProbes, c.HalfOpenProbes)
	return s
}

func or[T comparable](value, fallback T) T {
	var none T
	if value == none {
		return fallback
	}
	return value
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func setDuration(to *time.Duration, from *Duration) {
	if from != nil {
		*to = time.Duration(*from)
	}
}
