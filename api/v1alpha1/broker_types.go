package v1alpha1

// Broker says where a broker is and how to log in there. Every secret is one of the
// object's own namespace; none of it stands in a spec.
type Broker struct {
	// engine of the broker. NATS is NATS JetStream. Asynq is the task queue asynq on Redis or
	// Valkey; it is experimental, because it depends on how asynq stores its tasks, which
	// asynq may change.
	// +required
	Engine Engine `json:"engine"`

	BrokerAccess `json:",inline"`
}

// BrokerAccess is a broker's address and what it asks for.
type BrokerAccess struct {
	// urlSecretRef is the secret with the broker's URL, e.g. nats://nats.queues:4222 or
	// rediss://redis:6379/0. Several are separated by commas.
	// +required
	URLSecretRef SecretKey `json:"urlSecretRef"`

	// tlsSecretRef is a secret as cert-manager makes it: ca.crt, the authority that the
	// broker's certificate is checked against, and tls.crt with tls.key, the client's own
	// certificate. Each may be left out.
	// +optional
	TLSSecretRef *SecretRef `json:"tlsSecretRef,omitempty"`

	// credentialsSecretRef is a secret with what the broker asks for: username and
	// password, or token, or creds, a NATS credentials file.
	// +optional
	CredentialsSecretRef *SecretRef `json:"credentialsSecretRef,omitempty"`
}

// SecretRef names a secret of the same namespace.
type SecretRef struct {
	// name of the secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// SecretKey names a key of a secret of the same namespace.
type SecretKey struct {
	SecretRef `json:",inline"`

	// key in the secret.
	// +optional
	// +kubebuilder:default=url
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// Engine is a kind of broker that queues are made on.
// +kubebuilder:validation:Enum=NATS;Asynq
type Engine string

// The engines.
const (
	EngineNATS  Engine = "NATS"
	EngineAsynq Engine = "Asynq"
)
