package workerpool

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/pool"
	"github.com/yardmaster/yardmaster/worker"
)

// The directories in which workers find what is secret, and the keys they need.
const (
	dirURL, dirTLS, dirCredentials = "url", "tls", "credentials"

	keyCA    = "ca.crt"
	keyToken = "token"
	keyCreds = "creds"
)

// observeConfig makes what the workers read.
func (r *Reconciler) observeConfig(ctx context.Context, seen *sight) error {
	key := seen.queues.line.Key
	if key.URLSecret == "" {
		_, err := seen.queues.line.Engine()
		return seen.because(err)
	}
	c := worker.Config{Concurrency: int(seen.in.Pool.Spec.Concurrency)}
	if most := seen.in.Pool.Spec.MaxInFlight; most != nil {
		c.MaxInFlight = int(*most)
	}
	secrets := map[string]pool.MountedSecret{dirURL: {Secret: key.URLSecret, Keys: []string{key.URLKey}}}
	c.Broker.URLFile = file(dirURL, key.URLKey)
	if key.TLSSecret != "" {
		has, err := r.keysOf(ctx, seen.in.Pool.Namespace, key.TLSSecret)
		if err != nil {
			return seen.because(err)
		}
		c.Broker.TLS = worker.TLSConfig{
			CAFile:          has.file(dirTLS, keyCA),
			CertificateFile: has.file(dirTLS, corev1.TLSCertKey),
			KeyFile:         has.file(dirTLS, corev1.TLSPrivateKeyKey),
		}
		secrets[dirTLS] = pool.MountedSecret{Secret: key.TLSSecret}
	}
	if key.CredentialsSecret != "" {
		has, err := r.keysOf(ctx, seen.in.Pool.Namespace, key.CredentialsSecret)
		if err != nil {
			return seen.because(err)
		}
		used := has.login(&c.Broker)
		if len(used) == 0 {
			return seen.because(&brokerconn.ConnectionError{Reason: v1alpha1.ReasonSecretInvalid, Err: fmt.Errorf(
				"the Secret %q has none of the keys username, token, creds", key.CredentialsSecret)})
		}
		// What is mounted is part of the revision: another way to log in takes new workers, other
		// credentials of the same sort do not.
		secrets[dirCredentials] = pool.MountedSecret{Secret: key.CredentialsSecret, Keys: used}
	}
	names := seen.queues.configure(&c, seen.in.Effective)
	raw, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("writing the workers' configuration: %w", err)
	}
	seen.in.Config = pool.WorkerConfig{File: string(raw), Queues: names, Secrets: secrets}
	return nil
}

// because has the core know of a problem that only the user can put right. All others are
// returned.
func (s *sight) because(err error) error {
	problem, is := err.(*brokerconn.ConnectionError) //nolint:errorlint // it is not wrapped
	if !is {
		return err
	}
	if s.in.Problem == nil {
		s.in.Problem = &pool.Problem{Reason: problem.Reason, Message: problem.Error()}
	}
	return nil
}

func file(dir, key string) string { return pool.ConfigMountPath + "/" + dir + "/" + key }

// configure writes the queues into the workers' configuration, and returns their names as
// the environment has them.
func (qs *queues) configure(c *worker.Config, effective *v1alpha1.WorkerPoolEffective) (names string) {
	var all []string
	for i := range qs.all {
		q := &qs.all[i]
		to := worker.QueueConfig{
			Name: q.wanted.Name, Weight: int(q.weight), StrictPriority: q.wanted.StrictPriority, Lease: worker.Duration(q.wanted.Lease),
			Retry: &worker.RetryPolicy{
				MaxAttempts:       new(q.wanted.Retry.MaxAttempts),
				InitialDelay:      new(worker.Duration(q.wanted.Retry.InitialDelay)),
				MaxDelay:          new(worker.Duration(q.wanted.Retry.MaxDelay)),
				MultiplierPercent: new(q.wanted.Retry.MultiplierPercent),
				JitterPercent:     new(q.wanted.Retry.JitterPercent),
			},
			DeadLetter:     &worker.DeadLetterPolicy{Enabled: new(q.wanted.DeadLetter.Enabled)},
			CircuitBreaker: breaker(effective),
		}
		for _, p := range q.wanted.Priorities {
			to.Priorities = append(to.Priorities, worker.PriorityConfig{Name: p.Name, Weight: p.Weight})
		}
		c.Queues = append(c.Queues, to)
		all = append(all, fmt.Sprintf("%s=%d", to.Name, to.Weight))
	}
	return strings.Join(all, ",")
}

func breaker(effective *v1alpha1.WorkerPoolEffective) *worker.CircuitBreaker {
	if effective == nil || effective.CircuitBreaker == nil {
		return nil
	}
	b := effective.CircuitBreaker
	return &worker.CircuitBreaker{
		FailureThresholdPercent: whole(b.FailureThresholdPercent),
		Window:                  duration(b.Window),
		MinSamples:              whole(b.MinSamples),
		Cooldown:                duration(b.Cooldown),
		HalfOpenProbes:          whole(b.HalfOpenProbes),
	}
}

func whole(n *int32) *int {
	if n == nil {
		return nil
	}
	return new(int(*n))
}

func duration(d *v1alpha1.Duration) *worker.Duration {
	if d == nil {
		return nil
	}
	return new(worker.Duration(d.Duration.Duration))
}

// keysAge is how long the keys of a Secret are remembered. Of what stands under them
// nothing is.
const keysAge = 30 * time.Second

// keys of a Secret under which something stands.
type keys map[string]bool

func (k keys) file(dir, key string) string {
	if !k[key] {
		return ""
	}
	return file(dir, key)
}

// login has workers log in with what a Secret has, one way if it has several. It returns the
// keys that this takes, none if there is no way.
func (k keys) login(b *worker.BrokerConfig) (used []string) {
	const name, password = corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey
	switch {
	case k[keyCreds]:
		b.CredentialsFile = file(dirCredentials, keyCreds)
		return []string{keyCreds}
	case k[name] && k[password]:
		b.UsernameFile, b.PasswordFile = file(dirCredentials, name), file(dirCredentials, password)
		return []string{name, password}
	case k[name]:
		b.UsernameFile = file(dirCredentials, name)
		return []string{name}
	case k[keyToken]:
		b.TokenFile = file(dirCredentials, keyToken)
		return []string{keyToken}
	}
	return nil
}

// keysOf a Secret, which its reader has not in a cache.
func (r *Reconciler) keysOf(ctx context.Context, namespace, name string) (keys, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if known, there := r.secrets.Get(key); there {
		return known.(keys), nil //nolint:forcetypeassert // nothing else is put there
	}
	secret := &corev1.Secret{}
	err := r.live.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &brokerconn.ConnectionError{Reason: v1alpha1.ReasonSecretNotFound, Err: fmt.Errorf("Secret %q not found", name)} //nolint:staticcheck // the kind is spelt so
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	found := keys{}
	for key, value := range secret.Data {
		found[key] = len(value) > 0
	}
	r.secrets.Add(key, found, keysAge)
	return found, nil
}
