// Package certs provides the certificate of the webhook server.
//
// With self-managed certificates, a Secret in the operator's namespace has a CA and a server
// certificate. Each replica runs the rotator, which renews both in time and writes the CA into the
// webhook configurations, and a CertificateCopier, which copies the server certificate from the Secret
// into a local directory. Mounting the Secret is not sufficient: a kubelet takes up to a minute to
// update a volume, and until then the API server refuses every SequentialJob.
//
// The package neither issues certificates itself nor creates the Secret, which is part of the
// installation, so that the operator needs no permission to create Secrets.
package certs

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// Rotation configures the self-managed certificate.
type Rotation struct {
	// Secret with the CA and the server certificate. It must exist.
	Secret types.NamespacedName
	// Service that the API server calls, in the namespace of the Secret.
	Service string
	// Webhooks is the name of the ValidatingWebhookConfiguration that gets the CA and, if
	// Mutating is true, of the MutatingWebhookConfiguration.
	Webhooks string
	Mutating bool
	// Directory for the server certificate.
	Directory string
}

// SetupWithManager adds the rotator and the CertificateCopier. The returned check succeeds once the
// certificate exists and the webhook configurations have its CA.
func (r Rotation) SetupWithManager(mgr ctrl.Manager) (healthz.Checker, error) {
	copier, err := NewCertificateCopier(mgr, r.Secret, r.Directory)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(copier); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	host := fmt.Sprintf("%s.%s.svc", r.Service, r.Secret.Namespace)
	err = rotator.AddRotator(mgr, &rotator.CertRotator{
		SecretKey:      r.Secret,
		CertDir:        r.Directory,
		CAName:         "yardmaster-ca",
		CAOrganization: "yardmaster",
		DNSName:        host,
		ExtraDNSNames:  []string{host + ".cluster.local"},
		IsReady:        ready,
		Webhooks:       r.webhookInfos(),
		FieldOwner:     "yardmaster-cert-rotator",
		// Every replica rotates, so that none is ready before the API server trusts it.
		// Concurrent writes conflict and are retried.
		RequireLeaderElection: false,
	})
	if err != nil {
		return nil, fmt.Errorf("adding the certificate rotator: %w", err)
	}
	return readyChecker(ready), nil
}

// webhookInfos returns the configurations that get the CA. Without a mutating webhook, the operator may
// lack the permission to write its configuration.
func (r Rotation) webhookInfos() []rotator.WebhookInfo {
	all := []rotator.WebhookInfo{{Name: r.Webhooks, Type: rotator.Validating}}
	if r.Mutating {
		all = append(all, rotator.WebhookInfo{Name: r.Webhooks, Type: rotator.Mutating})
	}
	return all
}

func readyChecker(ready <-chan struct{}) healthz.Checker {
	return func(*http.Request) error {
		select {
		case <-ready:
			return nil
		default:
			return errors.New("the webhook's certificate is not ready yet")
		}
	}
}
