package brokeraccess

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kube/flagenv"
)

// DefaultBroker is the broker of Queues without a broker. Its Secrets are in the operator's namespace.
type DefaultBroker struct {
	Engine string
	// URLSecret is name or name/key.
	URLSecret         string
	TLSSecret         string
	CredentialsSecret string
	// NATS has settings of the connection. Only for the engine NATS.
	NATS v1alpha1.NATSConnection
	// SentinelMaster is the name of the master at Redis Sentinels, SentinelSecret has the login at the Sentinels. Only for the engine
	// Asynq.
	SentinelMaster, SentinelSecret string
}

// BindFlags defines the flags of a default broker.
func (b *DefaultBroker) BindFlags(f *flag.FlagSet) {
	f.StringVar(&b.URLSecret, "broker-url-secret", "",
		"Secret in the operator's namespace with the URL of the broker for Queues without a broker, as name or name/key. Empty means that each Queue must have a broker.")
	f.StringVar(&b.Engine, "broker-engine", string(v1alpha1.EngineNATS), "Engine of the default broker.")
	f.StringVar(&b.TLSSecret, "broker-tls-secret", "",
		"Secret with ca.crt, tls.crt and tls.key for the default broker. Empty means none.")
	f.StringVar(&b.CredentialsSecret, "broker-credentials-secret", "",
		"Secret with username and password, token, creds or nkey for the default broker. Empty means none.")
	f.StringVar(&b.NATS.JetStreamDomain, "broker-jetstream-domain", "",
		"JetStream domain of the queues on the default broker. Empty means that of its server.")
	f.StringVar(&b.NATS.InboxPrefix, "broker-inbox-prefix", "",
		"Prefix of the subjects on which the default broker answers. Empty means _INBOX.")
	f.StringVar(&b.SentinelMaster, "broker-sentinel-master", "",
		"Name under which Redis Sentinels monitor the default broker. The URL then has their addresses. Empty means that the URL has that of the server.")
	f.StringVar(&b.SentinelSecret, "broker-sentinel-credentials-secret", "",
		"Secret with username and password for the Sentinels of the default broker. Empty means none.")
}

// BindNetworkFlags defines the flags for the addresses of brokers.
func BindNetworkFlags(f *flag.FlagSet, network *bounded.Options) {
	f.BoolVar(&network.AllowLocal, "allow-local-brokers", false,
		"Connect also to brokers and backlog sources at loopback, link-local and metadata addresses, and at those of the operator: for an operator outside a cluster.")
	f.Func("deny-cidrs", "Networks of brokers and backlog sources to which the operator does not connect, as CIDRs separated by commas. May be repeated.", func(value string) error {
		return flagenv.AppendPrefixes(&network.Deny, value)
	})
}

// Reference returns nil if no default broker is configured.
func (b *DefaultBroker) Reference() *v1alpha1.Broker {
	if b.URLSecret == "" {
		return nil
	}
	r := &v1alpha1.Broker{Engine: v1alpha1.Engine(b.Engine)}
	r.URLSecretRef.Name, r.URLSecretRef.Key, _ = strings.Cut(b.URLSecret, "/")
	if b.TLSSecret != "" {
		r.TLSSecretRef = &v1alpha1.LocalReference{Name: b.TLSSecret}
	}
	if b.CredentialsSecret != "" {
		r.CredentialsSecretRef = &v1alpha1.LocalReference{Name: b.CredentialsSecret}
	}
	if b.NATS != (v1alpha1.NATSConnection{}) {
		r.NATS = new(b.NATS)
	}
	if b.SentinelMaster != "" {
		r.Sentinel = &v1alpha1.RedisSentinel{MasterName: b.SentinelMaster}
		if b.SentinelSecret != "" {
			r.Sentinel.CredentialsSecretRef = &v1alpha1.LocalReference{Name: b.SentinelSecret}
		}
	}
	return r
}

// Validate returns an error that names the flag.
func (b *DefaultBroker) Validate() error {
	engines := []string{string(v1alpha1.EngineNATS), string(v1alpha1.EngineAsynq)}
	if !slices.Contains(engines, b.Engine) {
		return fmt.Errorf("--broker-engine is %q, must be one of %s", b.Engine, strings.Join(engines, ", "))
	}
	if b.URLSecret == "" && (b.TLSSecret != "" || b.CredentialsSecret != "") {
		return errors.New("--broker-tls-secret and --broker-credentials-secret need --broker-url-secret")
	}
	if b.NATS != (v1alpha1.NATSConnection{}) && (b.URLSecret == "" || b.Engine != string(v1alpha1.EngineNATS)) {
		return errors.New("--broker-jetstream-domain and --broker-inbox-prefix need --broker-url-secret, and the engine NATS")
	}
	if b.SentinelMaster != "" && (b.URLSecret == "" || b.Engine != string(v1alpha1.EngineAsynq)) || b.SentinelSecret != "" && b.SentinelMaster == "" {
		return errors.New("--broker-sentinel-master needs --broker-url-secret, and the engine Asynq; --broker-sentinel-credentials-secret needs --broker-sentinel-master")
	}
	return nil
}

// ConnectionError is why a connection cannot be used.
type ConnectionError struct {
	// Reason of the condition that reports it.
	Reason string
	Err    error
}

func (e *ConnectionError) Error() string { return e.Err.Error() }

func (e *ConnectionError) Unwrap() error { return e.Err }

// Problem returns the error as conditions report it.
func (e *ConnectionError) Problem() decision.Problem {
	return decision.Problem{Reason: e.Reason, Message: e.Err.Error()}
}
