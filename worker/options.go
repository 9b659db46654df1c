package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Options configure a worker. FromEnvironment reads them from the environment that a WorkerPool sets in its Pods.
type Options struct {
	// Config applies where ConfigFile does not set a field.
	Config Config
	// ConfigFile is the path of a Config as YAML or JSON. The worker reloads the file when it changes. If empty, only Config applies.
	ConfigFile string
	// Pool, Namespace, Pod and Revision identify the worker in its stats.
	Pool, Namespace, Pod, Revision string
	// AdminKeyFile is the path of the operator's public key in PEM form. If set, the admin API accepts requests that change the worker only
	// with a token that the operator signed for this Namespace and Pod, unless the file does not exist. If empty, it accepts such requests
	// only from the worker's own host.
	AdminKeyFile string
	// PreStopSecret is the value that the preStop hook must send in the header Yardmaster-Prestop-Secret. If empty, everyone who can connect
	// to the admin API can end the worker.
	PreStopSecret string
	// Available returns why the handler cannot run jobs now, or nil. The worker calls it before it takes its first message, every second from
	// then on, and after each job that was snoozed. Until it returns nil, the worker takes no messages, gives back those that have not
	// started, and is not ready. By default, the handler is always available.
	Available func(context.Context) error
	// Metrics of the program, which the worker serves with its own.
	Metrics []prometheus.Collector
	// OmitObjectNames leaves the label pool out of all metrics, and the label queue of the worker's own
	// metrics empty.
	OmitObjectNames bool
	// TracerProvider makes a span of each attempt, which is in the context of the handler. By default there are no spans. For the global
	// provider of OpenTelemetry, set otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
	// Logger of the worker. The default is slog.Default.
	Logger *slog.Logger
}

// The environment variables of a worker.
const (
	envPool           = "YARDMASTER_POOL"
	envNamespace      = "YARDMASTER_NAMESPACE"
	envPod            = "YARDMASTER_POD"
	envRevision       = "YARDMASTER_REVISION"
	envQueues         = "YARDMASTER_QUEUES"
	envConcurrency    = "YARDMASTER_CONCURRENCY"
	envConfigFile     = "YARDMASTER_CONFIG_FILE"
	envDrainTimeout   = "YARDMASTER_DRAIN_TIMEOUT"
	envAdminKeyFile   = "YARDMASTER_ADMIN_KEY_FILE"
	envPreStopSecret  = "YARDMASTER_PRESTOP_SECRET"
	envMetricsAddress = "YARDMASTER_METRICS_ADDRESS"
	envOmitNames      = "YARDMASTER_METRICS_OMIT_OBJECT_NAMES"
)

// FromEnvironment returns the options that the YARDMASTER_* environment variables define. YARDMASTER_QUEUES is a comma-separated list of
// queue names, each with an optional weight: orders=3,mail. The error names every invalid variable.
func FromEnvironment() (Options, error) { return parseEnvironment(os.Getenv) }

func parseEnvironment(getenv func(string) string) (Options, error) {
	o := Options{
		Config:        Config{MetricsAddress: getenv(envMetricsAddress)},
		ConfigFile:    getenv(envConfigFile),
		Pool:          getenv(envPool),
		Namespace:     getenv(envNamespace),
		Pod:           getenv(envPod),
		Revision:      getenv(envRevision),
		AdminKeyFile:  getenv(envAdminKeyFile),
		PreStopSecret: getenv(envPreStopSecret),
	}
	var errs []error
	for item := range strings.SplitSeq(getenv(envQueues), ",") {
		name, weight, hasWeight := strings.Cut(strings.TrimSpace(item), "=")
		if name == "" {
			continue
		}
		q := QueueConfig{Name: name}
		if hasWeight {
			var err error
			if q.Weight, err = strconv.Atoi(weight); err != nil || q.Weight < 1 {
				errs = append(errs, fmt.Errorf("%s: the weight of %s is %q, must be 1 to %d", envQueues, name, weight, maxQueueWeight))
			}
		}
		o.Config.Queues = append(o.Config.Queues, q)
	}
	if text := getenv(envConcurrency); text != "" {
		var err error
		if o.Config.Concurrency, err = strconv.Atoi(text); err != nil {
			errs = append(errs, fmt.Errorf("%s is %q, must be a number", envConcurrency, text))
		}
	}
	if text := getenv(envDrainTimeout); text != "" {
		timeout, err := time.ParseDuration(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q, must be a duration such as 10m", envDrainTimeout, text))
		}
		o.Config.DrainTimeout = Duration(timeout)
	}
	if text := getenv(envOmitNames); text != "" {
		var err error
		if o.OmitObjectNames, err = strconv.ParseBool(text); err != nil {
			errs = append(errs, fmt.Errorf("%s is %q, must be true or false", envOmitNames, text))
		}
	}
	return o, errors.Join(errs...)
}

// loadSettings reads the config file, merges it over Config, and applies the defaults.
func (o *Options) loadSettings() (*workerSettings, error) {
	config := o.Config
	if o.ConfigFile != "" {
		raw, err := os.ReadFile(o.ConfigFile)
		if err != nil {
			return nil, err
		}
		file, err := ParseConfig(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.ConfigFile, err)
		}
		config = mergeConfig(&file, &config)
	}
	s, err := config.validatedSettings()
	if err != nil && o.ConfigFile != "" {
		return nil, fmt.Errorf("%s: %w", o.ConfigFile, err)
	}
	return s, err
}

func mergeConfig(c, fallback *Config) Config {
	merged := Config{
		Broker:         cmp.Or(c.Broker, fallback.Broker),
		Queues:         c.Queues,
		Concurrency:    cmp.Or(c.Concurrency, fallback.Concurrency),
		MaxInFlight:    cmp.Or(c.MaxInFlight, fallback.MaxInFlight),
		DrainTimeout:   cmp.Or(c.DrainTimeout, fallback.DrainTimeout),
		AdminAddress:   cmp.Or(c.AdminAddress, fallback.AdminAddress),
		MetricsAddress: cmp.Or(c.MetricsAddress, fallback.MetricsAddress),
	}
	if len(merged.Queues) == 0 {
		merged.Queues = fallback.Queues
	}
	return merged
}
