package plugin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/operator/ca"
)

const (
	operatorName             = "yardmaster"
	gatewayName              = "yardmaster-gateway"
	defaultOperatorNamespace = "yardmaster-system"
	authoritySecretName      = "yardmaster-webhook-ca"
	// pathKey is the key of the secret path segment in the Secret.
	pathKey = "path"
)

// authority is the Secret with the certificate authority of the webhooks, and the webhook configurations that have its certificate
// and its path.
type authority struct {
	*environment

	cluster *clusterConnection
	// namespace is that of the operator.
	namespace string
	renew     bool
}

func newWebhookCACommand(env *environment) *cobra.Command {
	a := &authority{environment: env}
	command := &cobra.Command{
		Use:   "webhook-ca",
		Short: "Create the certificate authority of the webhooks, as the last step of an installation",
		Long: "Create the certificate authority of the webhooks and a secret path in a Secret, and write both into the webhook configurations, " +
			"which the operator cannot change. Run it once after `kubectl apply`; it changes only what differs. " +
			"`make deploy` and the Helm chart do the same, and with cert-manager nothing of it is needed.\n\n" +
			"With --renew, a new authority replaces the one in the Secret. The API server trusts both, until you run the command again without --renew.",
		Args:              rejectArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if a.cluster, err = env.connect(env.clientConfig); err != nil {
				return err
			}
			a.namespace = cmp.Or(a.cluster.givenNamespace(command), defaultOperatorNamespace)
			return a.install(command.Context())
		},
	}
	command.Flags().BoolVar(&a.renew, "renew", false, "Replace the certificate authority by a new one.")
	return command
}

// givenNamespace returns the value of --namespace, which is that of the operator in some commands; empty if the user did not give it.
func (c *clusterConnection) givenNamespace(command *cobra.Command) string {
	if namespace := command.Flag("namespace"); namespace == nil || !namespace.Changed {
		return ""
	}
	return c.namespace
}

func (a *authority) install(ctx context.Context) error {
	if err := a.checkUse(ctx); err != nil {
		return err
	}
	secret, err := a.ensureSecret(ctx)
	if err != nil {
		return err
	}
	trusted := secret.Data[ca.CertFile]
	if a.renew {
		renewed := secret.DeepCopy()
		if renewed.Data[ca.CertFile], renewed.Data[ca.KeyFile], err = ca.New(a.now()); err != nil {
			return err
		}
		// The API server trusts the new authority before a replica uses it.
		if err := a.writeConfigurations(ctx, slices.Concat(renewed.Data[ca.CertFile], trusted), string(secret.Data[pathKey])); err != nil {
			return err
		}
		if err := a.cluster.Update(ctx, renewed); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "renewed the certificate authority in Secret %s/%s: in two minutes, when all replicas use it, run the command again without --renew\n",
			a.namespace, secret.Name)
		return nil
	}
	return a.writeConfigurations(ctx, trusted, string(secret.Data[pathKey]))
}

// checkUse returns an error if the webhooks have their authority from elsewhere.
func (a *authority) checkUse(ctx context.Context) error {
	return a.forEachConfiguration(ctx, func(configuration client.Object) error {
		if from := configuration.GetAnnotations()["cert-manager.io/inject-ca-from"]; from != "" {
			return fmt.Errorf("%s has its certificate authority from cert-manager, of Certificate %s", nameOfConfiguration(configuration), from)
		}
		return nil
	})
}

// ensureSecret returns the Secret, and creates it if it does not exist.
func (a *authority) ensureSecret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := a.cluster.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: authoritySecretName}, secret)
	if apierrors.IsNotFound(err) {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: a.namespace, Name: authoritySecretName,
				Labels: map[string]string{"app.kubernetes.io/name": operatorName, "app.kubernetes.io/component": "webhook"},
			},
			Data: map[string][]byte{pathKey: []byte(strings.ToLower(rand.Text()))},
		}
		if secret.Data[ca.CertFile], secret.Data[ca.KeyFile], err = ca.New(a.now()); err != nil {
			return nil, err
		}
		if err := a.cluster.Create(ctx, secret); err != nil {
			return nil, err
		}
		fmt.Fprintf(a.out, "created the certificate authority of the webhooks in Secret %s/%s\n", a.namespace, secret.Name)
		return secret, nil
	}
	if err != nil {
		return nil, err
	}
	for _, key := range []string{ca.CertFile, ca.KeyFile, pathKey} {
		if len(secret.Data[key]) == 0 {
			return nil, fmt.Errorf("the Secret %s/%s lacks %s: delete the Secret, and run the command again", a.namespace, secret.Name, key)
		}
	}
	return secret, nil
}

// webhookClient is how the API server calls a webhook.
type webhookClient struct {
	config *admissionregistrationv1.WebhookClientConfig
	path   string
}

// writeConfigurations writes the trusted authorities and the path segment into the webhook configurations that lack them.
func (a *authority) writeConfigurations(ctx context.Context, trusted []byte, segment string) error {
	return a.forEachConfiguration(ctx, func(configuration client.Object) error {
		changed := 0
		for _, webhook := range webhookClients(configuration) {
			if webhook.config.Service == nil {
				continue
			}
			path := "/" + segment + webhook.path
			if now := webhook.config.Service.Path; bytes.Equal(webhook.config.CABundle, trusted) && now != nil && *now == path {
				continue
			}
			webhook.config.CABundle, webhook.config.Service.Path = trusted, &path
			changed++
		}
		if changed == 0 {
			return nil
		}
		if err := a.cluster.Update(ctx, configuration); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "wrote the certificate authority into %s, for %d webhooks\n", nameOfConfiguration(configuration), changed)
		return nil
	})
}

// forEachConfiguration calls a function with each webhook configuration of the operator, again if it conflicts with another write.
func (a *authority) forEachConfiguration(ctx context.Context, do func(client.Object) error) error {
	configurations, err := webhookConfigurations(ctx, a.cluster, a.namespace)
	if err != nil {
		return err
	}
	for _, configuration := range configurations {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := a.cluster.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
				return err
			}
			return do(configuration)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// webhookConfigurations returns the webhook configurations that call the operator in a namespace. Their names differ where a cluster
// has several operators. One without webhooks belongs to an operator whose controllers have none: its Pods need the certificate too.
func webhookConfigurations(ctx context.Context, cluster client.Reader, namespace string) (found []client.Object, err error) {
	validates, mutates := &admissionregistrationv1.ValidatingWebhookConfigurationList{}, &admissionregistrationv1.MutatingWebhookConfigurationList{}
	for _, list := range []client.ObjectList{validates, mutates} {
		if err := cluster.List(ctx, list, client.MatchingLabels{"app.kubernetes.io/name": operatorName}); err != nil {
			return nil, err
		}
	}
	var all []client.Object
	for i := range validates.Items {
		all = append(all, &validates.Items[i])
	}
	for i := range mutates.Items {
		all = append(all, &mutates.Items[i])
	}
	problem := errors.New("there is no webhook configuration of the operator: install the operator first")
	for _, configuration := range all {
		clients := webhookClients(configuration)
		if len(clients) == 0 {
			found = append(found, configuration)
		}
		for _, webhook := range clients {
			if service := webhook.config.Service; service != nil && service.Namespace == namespace {
				found = append(found, configuration)
				break
			} else if service != nil {
				problem = fmt.Errorf("%s calls the operator in namespace %s, not %s: use --namespace %s",
					nameOfConfiguration(configuration), service.Namespace, namespace, service.Namespace)
			}
		}
	}
	if len(found) == 0 {
		return nil, problem
	}
	return found, nil
}

// webhookClients returns how the API server calls the webhooks of a configuration.
func webhookClients(configuration client.Object) (clients []webhookClient) {
	switch c := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			clients = append(clients, webhookClient{&c.Webhooks[i].ClientConfig, "/validate/" + c.Webhooks[i].Name})
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			clients = append(clients, webhookClient{&c.Webhooks[i].ClientConfig, "/mutate/" + c.Webhooks[i].Name})
		}
	}
	return clients
}

func nameOfConfiguration(configuration client.Object) string {
	if _, mutates := configuration.(*admissionregistrationv1.MutatingWebhookConfiguration); mutates {
		return "MutatingWebhookConfiguration " + configuration.GetName()
	}
	return "ValidatingWebhookConfiguration " + configuration.GetName()
}
