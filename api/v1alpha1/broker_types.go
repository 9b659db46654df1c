package v1alpha1

// Broker refers to a broker and to the Secrets that are needed to log in. The Secrets are in the
// namespace of the object that refers to the broker, and have the label yardmaster.dev/broker: "true".
//
// +kubebuilder:validation:XValidation:rule="!has(self.nats) || self.engine == 'NATS'",message="nats has settings of the engine NATS: remove it, or use that engine",fieldPath=".nats"
// +kubebuilder:validation:XValidation:rule="!has(self.sentinel) || self.engine == 'Asynq'",message="sentinel finds a Redis server: remove it, or use the engine Asynq",fieldPath=".sentinel"
type Broker struct {
	// engine of the broker. NATS is NATS JetStream. Asynq is the task queue asynq on Redis or
	// Valkey; it is experimental, because it depends on how asynq stores its tasks, which asynq
	// may change.
	// +required
	Engine Engine `json:"engine"`

	BrokerAccess `json:",inline"`

	// nats has settings of the connections of the operator and of workers to NATS. Only with the
	// engine NATS. Default: those of a server without domains and restricted inboxes.
	// +optional
	NATS *NATSConnection `json:"nats,omitempty"`

	// sentinel finds the Redis server through Sentinels: the URL has their addresses. Only with the
	// engine Asynq. Default: the URL has the address of the server, or those of a cluster.
	// +optional
	Sentinel *RedisSentinel `json:"sentinel,omitempty"`
}

// RedisSentinel finds a Redis server through Sentinels, which replace it when it fails.
type RedisSentinel struct {
	// masterName is the name under which the Sentinels monitor the server.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-._A-Za-z0-9]+$`
	MasterName string `json:"masterName"`

	// credentialsSecretRef refers to a Secret with username and password for the Sentinels. The login at
	// the server is that of the broker or source. Default: no login.
	// +optional
	CredentialsSecretRef *LocalReference `json:"credentialsSecretRef,omitempty"`
}

// NATSConnection has settings of connections to NATS.
type NATSConnection struct {
	// jetStreamDomain is the JetStream domain that has the queues, such as that of the hub for
	// clients of a leaf node. Default: the domain of the server that the URL names.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-_A-Za-z0-9]+$`
	JetStreamDomain string `json:"jetStreamDomain,omitempty"`

	// inboxPrefix is the prefix of the subjects on which the server answers, for a user who may not
	// subscribe to _INBOX.>. The user must be able to subscribe to all subjects below it. Default:
	// _INBOX.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-_A-Za-z0-9]+(\.[-_A-Za-z0-9]+)*$`
	InboxPrefix string `json:"inboxPrefix,omitempty"`
}

// BrokerAccess refers to the address of a broker and to the credentials for it. Each Secret needs the
// label yardmaster.dev/broker: "true".
type BrokerAccess struct {
	// urlSecretRef refers to the Secret that contains the URL of the broker, for example
	// nats://nats.queues:4222 or rediss://redis:6379/0. Separate several URLs by commas. Its key defaults to url.
	// +required
	URLSecretRef KeyReference `json:"urlSecretRef"`

	// tlsSecretRef refers to a Secret in the format of cert-manager: ca.crt to verify the
	// certificate of the broker, and tls.crt with tls.key to authenticate the client. Each part is
	// optional. Default: no TLS Secret; the certificate authorities of the system are trusted.
	// +optional
	TLSSecretRef *LocalReference `json:"tlsSecretRef,omitempty"`

	// credentialsSecretRef refers to a Secret with username and password, or token, or creds (a
	// NATS credentials file), or nkey (the seed of a NATS user). Default: the login in the URL, if it
	// contains one.
	// +optional
	CredentialsSecretRef *LocalReference `json:"credentialsSecretRef,omitempty"`
}

// Engine is a broker implementation.
// +kubebuilder:validation:Enum=NATS;Asynq
type Engine string

// The engines.
const (
	EngineNATS  Engine = "NATS"
	EngineAsynq Engine = "Asynq"
)
