package v1alpha1

// Broker refers to a broker and to the Secrets that are needed to log in. The Secrets are in the
// namespace of the object that refers to the broker, and have the label yardmaster.dev/broker: "true".
//
// +kubebuilder:validation:XValidation:rule="!has(self.nats) || self.engine == 'NATS'",message="nats has settings of the engine NATS: remove it, or use that engine",fieldPath=".nats"
// +kubebuilder:validation:XValidation:rule="!has(self.sentinel) || self.engine == 'Asynq'",message="sentinel finds a Redis server: remove it, or use the engine Asynq",fieldPath=".sentinel"
type Broker struct {
	// engine is NATS, which is NATS JetStream, or Asynq, the experimental engine for asynq on Redis or Valkey.
	// +required
	Engine Engine `json:"engine"`

	BrokerAccess `json:",inline"`

	// nats has settings of connections to the engine NATS.
	// +optional
	NATS *NATSConnection `json:"nats,omitempty"`

	// sentinel finds the Redis server of the engine Asynq through Sentinels.
	// +optional
	Sentinel *RedisSentinel `json:"sentinel,omitempty"`
}

// RedisSentinel finds a Redis server through Sentinels, which replace it when it fails.
type RedisSentinel struct {
	// masterName is the name of the server at the Sentinels. The URL has the addresses of the Sentinels.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-._A-Za-z0-9]+$`
	MasterName string `json:"masterName"`

	// credentialsSecretRef is a Secret with username and password for the Sentinels.
	// +optional
	CredentialsSecretRef *LocalReference `json:"credentialsSecretRef,omitempty"`
}

// NATSConnection has settings of connections to NATS.
type NATSConnection struct {
	// jetStreamDomain of the queues. Defaults to that of the server.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-_A-Za-z0-9]+$`
	JetStreamDomain string `json:"jetStreamDomain,omitempty"`

	// inboxPrefix of the subjects on which the server answers. Defaults to _INBOX.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-_A-Za-z0-9]+(\.[-_A-Za-z0-9]+)*$`
	InboxPrefix string `json:"inboxPrefix,omitempty"`
}

// BrokerAccess refers to the address of a broker and to the credentials for it. Each Secret needs the
// label yardmaster.dev/broker: "true".
type BrokerAccess struct {
	// urlSecretRef is a Secret with the URL, such as nats://nats.queues:4222; several are separated by commas. Its key
	// defaults to url.
	// +required
	URLSecretRef KeyReference `json:"urlSecretRef"`

	// tlsSecretRef is a Secret with ca.crt, tls.crt and tls.key, each optional. Unset means the certificate
	// authorities of the system.
	// +optional
	TLSSecretRef *LocalReference `json:"tlsSecretRef,omitempty"`

	// credentialsSecretRef is a Secret with username and password, token, creds or nkey. Unset means the login in the
	// URL.
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
