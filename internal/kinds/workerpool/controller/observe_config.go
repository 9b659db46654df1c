package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/brokeraccess"
	"github.com/yardmaster/yardmaster/internal/kinds/policy"
	"github.com/yardmaster/yardmaster/internal/kinds/queue"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool"
	"github.com/yardmaster/yardmaster/worker"
)

// Directories in which Secrets are mounted, and keys of Secrets.
const (
	dirURL, dirTLS, dirCredentials, dirSentinel = "url", "tls", "credentials", "sentinel"

	keyCA    = "ca.crt"
	keyToken = "token"
	keyCreds = "creds"
	keyNKey  = "nkey"
)

func (r *Reconciler) observeConfig(ctx context.Context, observed *Observed) error {
	key := observed.queues.conn.Key
	if key.URLSecret == "" {
		_, err := observed.queues.conn.Engine()
		return observed.setConnectionProblem(err)
	}
	c := worker.Config{Concurrency: int(observed.Pool.Spec.Concurrency)}
	if maxInFlight := observed.Pool.Spec.MaxInFlight; maxInFlight != nil {
		c.MaxInFlight = int(*maxInFlight)
	}
	secrets, err := r.configureBroker(ctx, observed.Pool.Namespace, key, &c.Broker)
	if err != nil {
		return observed.setConnectionProblem(err)
	}
	effective := policy.EffectiveWorkerPool(observed.Pool, &observed.Policies)
	names := observed.queues.addToConfig(&c, effective.CircuitBreaker)
	raw, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("encoding the workers' configuration: %w", err)
	}
	observed.Config = workerpool.WorkerConfig{File: string(raw), Queues: names, Connection: key.Settings(), Secrets: secrets}
	return nil
}

// configureBroker sets how workers connect. It returns the Secrets that they mount. The mounted keys are part of the revision: another login
// method, or another certificate authority, needs new workers, but new values of the same keys do not.
func (r *Reconciler) configureBroker(
	ctx context.Context, namespace string, key brokeraccess.Key, b *worker.BrokerConfig,
) (map[string]workerpool.MountedSecret, error) {
	secrets := map[string]workerpool.MountedSecret{dirURL: {Secret: key.URLSecret, Keys: []string{key.URLKey}}}
	b.URLFile = mountedFile(dirURL, key.URLKey)
	b.JetStreamDomain, b.InboxPrefix, b.Sentinel.MasterName = key.JetStreamDomain, key.InboxPrefix, key.SentinelMaster
	if key.TLSSecret != "" {
		keys, err := r.readSecretKeys(ctx, namespace, key.TLSSecret)
		if err != nil {
			return nil, err
		}
		b.TLS = worker.TLSConfig{
			CAFile:          keys.mountedFile(dirTLS, keyCA),
			CertificateFile: keys.mountedFile(dirTLS, corev1.TLSCertKey),
			KeyFile:         keys.mountedFile(dirTLS, corev1.TLSPrivateKeyKey),
		}
		used := slices.DeleteFunc([]string{keyCA, corev1.TLSCertKey, corev1.TLSPrivateKeyKey}, func(key string) bool { return !keys[key] })
		secrets[dirTLS] = workerpool.MountedSecret{Secret: key.TLSSecret, Keys: used}
	}
	if key.CredentialsSecret != "" {
		keys, err := r.readSecretKeys(ctx, namespace, key.CredentialsSecret)
		if err != nil {
			return nil, err
		}
		used := keys.configureLogin(b)
		if len(used) == 0 {
			return nil, brokeraccess.InvalidSecret("the Secret %q has none of the keys username, token, creds, nkey", key.CredentialsSecret)
		}
		secrets[dirCredentials] = workerpool.MountedSecret{Secret: key.CredentialsSecret, Keys: used}
	}
	if key.SentinelSecret != "" {
		keys, err := r.readSecretKeys(ctx, namespace, key.SentinelSecret)
		if err != nil {
			return nil, err
		}
		const name, password = corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey
		if !keys[name] || !keys[password] {
			return nil, brokeraccess.InvalidSecret("the Secret %q must have the keys username and password", key.SentinelSecret)
		}
		b.Sentinel.UsernameFile, b.Sentinel.PasswordFile = mountedFile(dirSentinel, name), mountedFile(dirSentinel, password)
		secrets[dirSentinel] = workerpool.MountedSecret{Secret: key.SentinelSecret, Keys: []string{name, password}}
	}
	return secrets, nil
}

// setConnectionProblem sets a problem that only a user can fix, and returns other errors.
func (o *Observed) setConnectionProblem(err error) error {
	problem := (*brokeraccess.ConnectionError)(nil)
	if !errors.As(err, &problem) {
		return err
	}
	o.setProblem(problem.Reason, problem.Error())
	return nil
}

func mountedFile(dir, key string) string { return workerpool.ConfigMountPath + "/" + dir + "/" + key }

// addToConfig adds the queues to the workers' configuration. It returns the value of YARDMASTER_QUEUES.
func (qs *observedQueues) addToConfig(c *worker.Config, breaker *v1alpha1.CircuitBreaker) string {
	var circuitBreaker *worker.CircuitBreaker
	if breaker != nil { // its fields have defaults
		circuitBreaker = &worker.CircuitBreaker{
			FailureThresholdPercent: new(int(*breaker.FailureThresholdPercent)),
			Window:                  new(worker.Duration(breaker.Window.Duration.Duration)),
			MinSamples:              new(int(*breaker.MinSamples)),
			Cooldown:                new(worker.Duration(breaker.Cooldown.Duration.Duration)),
		}
	}
	var weights []string
	for i := range qs.all {
		config := &qs.all[i].config
		q := worker.QueueConfig{
			Name: config.Name, Weight: int(qs.all[i].weight), StrictPriority: config.StrictPriority,
			Lease: worker.Duration(config.Lease), JobTimeout: worker.Duration(config.JobTimeout),
			Retry: &worker.RetryPolicy{
				MaxAttempts:       new(config.Retry.MaxAttempts),
				InitialDelay:      new(worker.Duration(config.Retry.InitialDelay)),
				MaxDelay:          new(worker.Duration(config.Retry.MaxDelay)),
				MultiplierPercent: new(config.Retry.MultiplierPercent),
				JitterPercent:     new(config.Retry.JitterPercent),
			},
			DeadLetter:     &worker.DeadLetterPolicy{Enabled: new(config.DeadLetter.Enabled)},
			CircuitBreaker: circuitBreaker,
		}
		if config.Results.IsEnabled() {
			q.Results = &worker.ResultsConfig{Retention: worker.Duration(config.Results.Retention)}
		}
		for _, p := range queue.WorkerPriorities(qs.all[i].object, config) {
			q.Priorities = append(q.Priorities, worker.PriorityConfig{Name: p.Name, Weight: p.Weight})
		}
		c.Queues = append(c.Queues, q)
		weights = append(weights, fmt.Sprintf("%s=%d", q.Name, q.Weight))
	}
	return strings.Join(weights, ",")
}

// secretKeysAge is how long the keys of a Secret are remembered, without their values.
const secretKeysAge = 30 * time.Second

// secretKeys are the keys of a Secret that have a value.
type secretKeys map[string]bool

func (k secretKeys) mountedFile(dir, key string) string {
	if !k[key] {
		return ""
	}
	return mountedFile(dir, key)
}

// configureLogin configures the first login method for which the Secret has keys, and returns these keys; nil if it has
// none.
func (k secretKeys) configureLogin(b *worker.BrokerConfig) (used []string) {
	const name, password = corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey
	switch {
	case k[keyCreds]:
		b.CredentialsFile = mountedFile(dirCredentials, keyCreds)
		return []string{keyCreds}
	case k[name] && k[password]:
		b.UsernameFile, b.PasswordFile = mountedFile(dirCredentials, name), mountedFile(dirCredentials, password)
		return []string{name, password}
	case k[name]:
		b.UsernameFile = mountedFile(dirCredentials, name)
		return []string{name}
	case k[keyToken]:
		b.TokenFile = mountedFile(dirCredentials, keyToken)
		return []string{keyToken}
	case k[keyNKey]:
		b.NKeyFile = mountedFile(dirCredentials, keyNKey)
		return []string{keyNKey}
	}
	return nil
}

// readSecretKeys reads the keys of a Secret from the API server, because Secrets are not cached.
func (r *Reconciler) readSecretKeys(ctx context.Context, namespace, name string) (secretKeys, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if known, found := r.secretKeys.Get(key); found {
		return known.(secretKeys), nil //nolint:forcetypeassert // the only type that is added
	}
	data, err := brokeraccess.ReadSecret(ctx, r.Live, namespace, name)
	if err != nil {
		return nil, err
	}
	found := secretKeys{}
	for key, value := range data {
		found[key] = len(value) > 0
	}
	r.secretKeys.Add(key, found, secretKeysAge)
	return found, nil
}
