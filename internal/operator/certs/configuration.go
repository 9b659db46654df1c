package certs

import (
	"bytes"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/operator/webhook"
)

// secretPathsAnnotation on a webhook configuration allows the operator to change its paths. Manifests of an earlier version, which
// serves fixed paths, lack it: while a downgrade is rolled out, the newer replicas must not change these paths.
const secretPathsAnnotation = v1alpha1.Prefix + "secret-paths"

type webhookClient struct {
	config *admissionregistrationv1.WebhookClientConfig
	path   string
}

func webhookClients(configuration client.Object) []webhookClient {
	var clients []webhookClient
	switch c := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			clients = append(clients, webhookClient{&c.Webhooks[i].ClientConfig, webhook.ValidatingPath(c.Webhooks[i].Name)})
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			clients = append(clients, webhookClient{&c.Webhooks[i].ClientConfig, webhook.MutatingPath(c.Webhooks[i].Name)})
		}
	}
	return clients
}

// withPaths returns a copy of a configuration in which every path to a Service begins with the segment.
func withPaths(configuration client.Object, segment string) client.Object {
	changed, _ := configuration.DeepCopyObject().(client.Object)
	for _, c := range webhookClients(changed) {
		if c.config.Service != nil {
			c.config.Service.Path = new("/" + segment + c.path)
		}
	}
	return changed
}

// canCall reports whether the API server trusts the CA, and calls paths that the server accepts.
func canCall(configuration client.Object, ca []byte, accepted pathSegments) bool {
	for _, c := range webhookClients(configuration) {
		if !bytes.Equal(c.config.CABundle, ca) {
			return false
		}
	}
	for _, segment := range accepted {
		if equality.Semantic.DeepEqual(configuration, withPaths(configuration, segment)) {
			return true
		}
	}
	return false
}
