package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/yardmaster/yardmaster/internal/operator/webhook"
)

const (
	// WebhookLabel on a namespace disables the webhooks there if it is "off". Then the operator sees what they would reject.
	WebhookLabel = "test.yardmaster.dev/webhook"
	// WebhookPathSegment is the secret in the path of the webhooks.
	WebhookPathSegment = "secret-of-the-tests"
)

// Webhooks of the operator that the API server calls by address, as it cannot reach them through a Service.
type Webhooks struct {
	envtest.WebhookInstallOptions

	// Address is that of the server.
	Address string
	cluster *Cluster
}

// InstallWebhooks registers the webhooks, and creates the certificates and the secret path of their server.
func (c *Cluster) InstallWebhooks(ctx context.Context) (*Webhooks, error) {
	w := &Webhooks{cluster: c}
	w.Paths = []string{filepath.Join(Root(), "config", "webhook", "webhooks.yaml")}
	if err := w.Install(c.Config); err != nil {
		return nil, fmt.Errorf("installing the webhooks: %w", err)
	}
	w.Address = fmt.Sprintf("https://%s:%d", w.LocalServingHost, w.LocalServingPort)
	err := os.WriteFile(filepath.Join(w.LocalServingCertDir, webhook.PathFile), []byte(WebhookPathSegment), 0o600)
	for _, configuration := range w.configurations() {
		if err == nil {
			err = c.Update(ctx, configuration)
		}
	}
	if err != nil {
		return nil, errors.Join(err, w.Remove(ctx))
	}
	return w, nil
}

// configurations returns those of the installation, changed for the address.
func (w *Webhooks) configurations() (all []client.Object) {
	namespaces := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: WebhookLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"off"},
	}}}
	adapt := func(selector **metav1.LabelSelector, config *admissionregistrationv1.WebhookClientConfig, path string) {
		*selector, config.Service, config.URL = namespaces, nil, new(w.Address+"/"+WebhookPathSegment+path)
	}
	for _, configuration := range w.ValidatingWebhooks {
		for i := range configuration.Webhooks {
			hook := &configuration.Webhooks[i]
			adapt(&hook.NamespaceSelector, &hook.ClientConfig, webhook.ValidatingPath(hook.Name))
		}
		all = append(all, configuration)
	}
	for _, configuration := range w.MutatingWebhooks {
		for i := range configuration.Webhooks {
			hook := &configuration.Webhooks[i]
			adapt(&hook.NamespaceSelector, &hook.ClientConfig, webhook.MutatingPath(hook.Name))
		}
		all = append(all, configuration)
	}
	return all
}

// Remove deletes the configurations. Without the operator, the API server would reject every object.
func (w *Webhooks) Remove(ctx context.Context) error {
	var errs []error
	for _, configuration := range w.configurations() {
		errs = append(errs, w.cluster.Delete(ctx, configuration))
	}
	return errors.Join(append(errs, w.Cleanup())...)
}
