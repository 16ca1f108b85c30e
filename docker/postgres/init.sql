-- Run once, by the image, when the data folder is empty. unspool would make the extension too; here it is there before anybody connects.
CREATE EXTENSION IF NOT EXISTS vector;
