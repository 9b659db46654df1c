// Package brokeraccess reads how to reach brokers: the references in specs, and the Secrets that they name.
package brokeraccess

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Key identifies a broker by the Secrets and settings of its reference. Objects of a namespace with equal references have equal keys
// and share a connection.
type Key struct {
	Namespace                    string
	Engine                       v1alpha1.Engine
	URLSecret, URLKey            string
	TLSSecret, CredentialsSecret string
	JetStreamDomain, InboxPrefix string
	SentinelMaster               string
	SentinelSecret               string // with the login at the Sentinels
}

// String is unique, because no part contains a slash.
func (k Key) String() string {
	return fmt.Sprintf("%s/%s/%s/%s/%s/%s/%s/%s", k.Namespace, k.Engine, k.URLSecret, k.URLKey, k.TLSSecret, k.CredentialsSecret, k.SentinelSecret, k.Settings())
}

// Settings describes the settings of the connection other than its Secrets; empty if it has no such settings.
func (k Key) Settings() string {
	var settings []string
	for _, setting := range []struct{ name, value string }{
		{"jetStreamDomain", k.JetStreamDomain}, {"inboxPrefix", k.InboxPrefix}, {"sentinelMaster", k.SentinelMaster},
	} {
		if setting.value != "" {
			settings = append(settings, setting.name+"="+setting.value)
		}
	}
	return strings.Join(settings, ",")
}

// defaultURLKey is the default that the API server sets.
const defaultURLKey = "url"

// KeyOf returns the key of a broker that an object of the namespace refers to.
func KeyOf(namespace string, b *v1alpha1.Broker) Key {
	key := Key{
		Namespace: namespace, Engine: b.Engine,
		URLSecret: b.URLSecretRef.Name, URLKey: cmp.Or(b.URLSecretRef.Key, defaultURLKey),
	}
	if b.TLSSecretRef != nil {
		key.TLSSecret = b.TLSSecretRef.Name
	}
	if b.CredentialsSecretRef != nil {
		key.CredentialsSecret = b.CredentialsSecretRef.Name
	}
	if b.NATS != nil {
		key.JetStreamDomain, key.InboxPrefix = b.NATS.JetStreamDomain, b.NATS.InboxPrefix
	}
	if b.Sentinel != nil {
		key.SentinelMaster = b.Sentinel.MasterName
		if b.Sentinel.CredentialsSecretRef != nil {
			key.SentinelSecret = b.Sentinel.CredentialsSecretRef.Name
		}
	}
	return key
}
