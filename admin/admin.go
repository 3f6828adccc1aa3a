// Package admin answers what people and programs ask of a running process.
package admin
