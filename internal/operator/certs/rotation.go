// Package certs provides the certificate of the webhook server.
//
// With self-managed certificates, a Secret in the operator's namespace has a CA, a server certificate and the path segment with which
// the API server proves its identity to the webhook. Each replica runs the rotator, which renews both certificates in time and writes
// the CA into the webhook configurations, and a reconciler, which renews the path, writes it into the configurations, and copies the
// server's files into a local directory. Mounting the Secret is not sufficient: a kubelet takes up to a minute to update a volume,
// and until then the API server refuses every object that a webhook validates.
//
// The package neither issues certificates itself nor creates the Secret, which is part of the installation, so that the operator
// needs no permission to create Secrets.
package certs

import (
	"fmt"

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
	// Webhooks is the name of the ValidatingWebhookConfiguration that gets the CA and the path and, if Mutating is true, of the
	// MutatingWebhookConfiguration.
	Webhooks string
	Mutating bool
	// Directory for the server certificate and the path.
	Directory string
}

// fieldOwner of the operator's fields in webhook configurations.
const fieldOwner = "yardmaster-cert-rotator"

// SetupWithManager adds the rotator and the reconciler. The returned check succeeds while the webhook configurations have the CA and
// the path in the Secret.
func (r Rotation) SetupWithManager(mgr ctrl.Manager) (healthz.Checker, error) {
	paths, err := newReconciler(mgr, r.Secret, webhookConfigurations(r.Webhooks, r.Mutating), r.Directory)
	if err != nil {
		return nil, err
	}
	if err := paths.setupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("adding the reconciler of webhook configurations: %w", err)
	}
	host := fmt.Sprintf("%s.%s.svc", r.Service, r.Secret.Namespace)
	err = rotator.AddRotator(mgr, &rotator.CertRotator{
		SecretKey:      r.Secret,
		CertDir:        r.Directory,
		CAName:         "yardmaster-ca",
		CAOrganization: "yardmaster",
		DNSName:        host,
		ExtraDNSNames:  []string{host + ".cluster.local"},
		IsReady:        make(chan struct{}), // the returned check replaces it
		Webhooks:       r.webhookInfos(),
		FieldOwner:     fieldOwner,
		// Every replica rotates, so that no replica is ready before the API server trusts it. Concurrent writes conflict and are
		// retried.
		RequireLeaderElection: false,
	})
	if err != nil {
		return nil, fmt.Errorf("adding the certificate rotator: %w", err)
	}
	return paths.ready, nil
}

// webhookInfos returns the configurations that get the CA. Without a mutating webhook, the operator may lack the permission to write
// the MutatingWebhookConfiguration.
func (r Rotation) webhookInfos() []rotator.WebhookInfo {
	all := []rotator.WebhookInfo{{Name: r.Webhooks, Type: rotator.Validating}}
	if r.Mutating {
		all = append(all, rotator.WebhookInfo{Name: r.Webhooks, Type: rotator.Mutating})
	}
	return all
}
