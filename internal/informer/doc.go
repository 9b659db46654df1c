// Package informer provides a client-go informer that reconnects to the API server within
// about a second after an outage, instead of after client-go's back-off of up to a minute.
package informer
