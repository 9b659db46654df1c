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

// Rotation says which certificate is for what.
type Rotation struct {
	// Secret that holds the CA and the server certificate. It must exist.
	Secret types.NamespacedName
	// Service the API server calls, in the Secret's namespace.
	Service string
	// Webhooks is the name of the webhook configurations that are given the CA: the validating
	// one and, if there is a webhook that is Mutating, that one too.
	Webhooks string
	Mutating bool
	// Directory that gets the server certificate.
	Directory string
}

// SetupWithManager adds the rotator and the mirror. The check it returns passes once
// the certificate is in place and the API server was told to trust it.
func (r Rotation) SetupWithManager(mgr ctrl.Manager) (healthz.Checker, error) {
	mirror, err := NewMirror(mgr, r.Secret, r.Directory)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(mirror); err != nil {
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
		Webhooks:       r.configurations(),
		FieldOwner:     "yardmaster-cert-rotator",
		// Every replica, so that none says it is ready before the API server trusts
		// it. Their writes carry a resource version; who comes second reads again.
		RequireLeaderElection: false,
	})
	if err != nil {
		return nil, fmt.Errorf("adding the certificate rotator: %w", err)
	}
	return closedChecker(ready), nil
}

// configurations that are given the CA. Where no webhook that changes objects is served, there
// may be no permission to write to their configuration.
func (r Rotation) configurations() []rotator.WebhookInfo {
	all := []rotator.WebhookInfo{{Name: r.Webhooks, Type: rotator.Validating}}
	if r.Mutating {
		all = append(all, rotator.WebhookInfo{Name: r.Webhooks, Type: rotator.Mutating})
	}
	return all
}

func closedChecker(ready <-chan struct{}) healthz.Checker {
	return func(*http.Request) error {
		select {
		case <-ready:
			return nil
		default:
			return errors.New("the webhook's certificate is not ready yet")
		}
	}
}
